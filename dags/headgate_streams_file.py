"""No DAGs: shows what is wrong in the fleet's streams.yaml as an import error of this file.

It is a file of its own since Airflow schedules no DAG of a file with an import error, and headgate_fleet.py has the one
that brings lost streams back.
"""

from __future__ import annotations

from pathlib import Path

from headgate_airflow.dag_factory import refuse_mistakes

refuse_mistakes(Path(__file__).with_name("streams.yaml"))
