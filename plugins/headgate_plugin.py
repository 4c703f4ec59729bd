"""The only file that Airflow imports by itself: says what Headgate adds to Airflow."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class HeadgatePlugin(AirflowPlugin):
    """Headgate's entry in Airflow's list of plugins."""

    name = "headgate"
