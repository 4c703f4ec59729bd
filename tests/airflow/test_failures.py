"""What a person has to mend fails a task at once, and its sentence is the first thing that the log has of it."""

from __future__ import annotations

import logging
import traceback

import pytest
from airflow.sdk.exceptions import AirflowFailException

from headgate_airflow.failures import told_to_airflow
from headgate_contract.errors import RestoreRefused, StorageError

pytestmark = pytest.mark.airflow


def test_the_sentence_comes_first_and_no_chain_of_tracebacks_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(AirflowFailException) as failed, told_to_airflow():
        raise RestoreRefused("checkpoint 3 is damaged", hint="take 2")
    assert caplog.messages == ["checkpoint 3 is damaged; take 2"]
    told = "".join(traceback.format_exception(failed.value))
    assert told.count("Traceback") == 1
    assert told.rstrip().endswith("checkpoint 3 is damaged; take 2")


def test_what_a_retry_may_mend_goes_on_as_it_is() -> None:
    with pytest.raises(StorageError), told_to_airflow():
        raise StorageError("not now")
