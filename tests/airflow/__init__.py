"""The Airflow face: operators, sensors and triggers on real streams, by dag.test and by real servers."""
