"""Spark's daemon of Python workers, whose workers find the neighbours of the job file, as the driver does."""

from __future__ import annotations

import os
import sys

from pyspark.daemon import manager

from headgate.job.loading import JOB_FOLDER

if __name__ == "__main__":
    if JOB_FOLDER in os.environ:
        sys.path.append(os.environ[JOB_FOLDER])  # the last, unlike PYTHONPATH: it hides nothing of Python's own
    manager()
