"""The fleet's DAGs, as streams.yaml beside this file declares them (or the file that $HEADGATE_STREAMS_FILE names).

headgate_restore brings lost streams back; headgate_undeclared fails while a stream runs that the file does not declare;
STREAM__savepoint takes savepoints by the stream's cron; headgate_start, _stop, _savepoint and _restore_to are started
by hand, with a form. To go through an Airflow connection, name it here as conn_id. What is wrong in streams.yaml is
shown by headgate_streams_file.py.
"""

from __future__ import annotations

from pathlib import Path

from headgate_airflow.dag_factory import fleet_dags

globals().update(fleet_dags(Path(__file__).with_name("streams.yaml"), conn_id=None))
