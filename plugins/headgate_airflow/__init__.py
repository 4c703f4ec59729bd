"""Headgate's face in Airflow: hooks, operators, sensors, triggers and the DAG factory; thin over headgate_control."""
