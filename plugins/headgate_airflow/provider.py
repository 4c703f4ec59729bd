"""What Airflow's list of providers says about Headgate: the connection type `headgate` and its form.

A plugin cannot register a connection type; a provider can, and a provider is whatever an installed distribution calls
by the entry point `apache_airflow_provider`. The folder headgate_airflow.dist-info beside this package is such a
distribution: Airflow has the plugins folder on its path, so it is found there without being installed.
"""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Called by Airflow in processes that know nothing of Headgate yet: imports nothing."""
    return {
        "package-name": "headgate-airflow",
        "name": "Headgate",
        "description": "Fault-tolerant PySpark streams",
        "connection-types": [
            {
                "connection-type": "headgate",
                "hook-class-name": "headgate_airflow.hooks.headgate.HeadgateHook",
                "hook-name": "Headgate",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "port", "host"],
                    "relabeling": {"login": "Access key (S3)", "password": "Secret key (S3)"},
                },
                "conn-fields": {
                    "root": {
                        "label": "Storage root",
                        "description": "A folder or s3://bucket/prefix that Airflow and the drivers can both write.",
                        "schema": {"type": "string"},
                    },
                    "options": {
                        "label": "Options",
                        "description": 'JSON for fsspec, e.g. {"endpoint_url": "http://localhost:9000"}.',
                        "schema": {"type": ["object", "null"]},
                    },
                },
            }
        ],
    }
