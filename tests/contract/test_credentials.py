"""Credentials in URLs are found, and never repeated; what only looks like them is left alone."""

from __future__ import annotations

import pytest

from headgate_contract.credentials import carries_credentials, is_secret, masked
from headgate_contract.errors import BadConfiguration
from headgate_contract.heartbeats import Heartbeat, StreamState, write_heartbeat
from headgate_contract.history import Event, record_event
from headgate_contract.ids import Generation, RequestId, StreamName
from headgate_contract.mailbox import Answer, Mailbox, Outcome
from headgate_contract.settings import Settings
from headgate_contract.store import open_store
from tests.contract.store_suite import unique

CARRYING = {
    "s3://KEY:SECRET@bucket/in": "s3://...@bucket/in",
    "s3a://KEY:SE/CR+ET@bucket/in": "s3a://...@bucket/in",
    "S3://SECRET@bucket": "S3://...@bucket",
    "s3://12:SEC/RET@bucket": "s3://...@bucket",
    "https://SECRET@host/x": "https://...@host/x",
    "jdbc:postgresql://me:SECRET@db/x": "jdbc:postgresql://...@db/x",
    "hdfs://me:SE/CRET@host/x": "hdfs://...@host/x",
    "-Dproxy=http://me:SECRET@host:80 -Dother=1": "-Dproxy=http://...@host:80 -Dother=1",
    "jdbc:mysql://db/x?user=me&password=SECRET": "jdbc:mysql://db/x?user=me&password=...",
    "https://acct.blob.core.windows.net/c?sv=1&sig=SECRET": "https://acct.blob.core.windows.net/c?sv=1&sig=...",
    "s3://bucket/x?X-Amz-Signature=SECRET": "s3://bucket/x?X-Amz-Signature=...",
    "s3://a/b,s3://KEY:SECRET@c/d": "s3://a/b,s3://...@c/d",
}
PLAIN = [
    "s3://bucket/in",
    "s3://bucket/a@b",
    "/data/a@b:c",
    "file:///data/me@home",
    "http://host:9000/x@y",
    "http://[::1]/x@y",
    "http://[::1]:80/x@y",
    "abfss://container@account.dfs.core.windows.net/x",
    "hdfs://me@host/x",
    "mail me@host: it is 5",
    "local[2]",
    "password=x",
]


@pytest.mark.parametrize(("text", "shown"), CARRYING.items())
def test_credentials_are_found_and_masked(text: str, shown: str) -> None:
    assert carries_credentials(text)
    assert masked(text) == shown
    assert not carries_credentials(shown), "what was masked once is left as it is"
    assert "SE" not in shown.replace("SERVER", "")


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert not carries_credentials(text)
    assert masked(text) == text


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@bucket/x", "http://KEY:SECRET@host/x", "file://KEY:SECRET@host/x"])
def test_a_root_with_credentials_is_refused_whatever_its_scheme_and_they_are_not_shown(url: str) -> None:
    with pytest.raises(BadConfiguration, match="carries credentials") as refused:
        open_store(url)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(
    "key", ["spark.hadoop.fs.s3a.endpoint", "execution.checkpointing.savepoint-dir", "headgate.work-dir"]
)
def test_a_setting_with_credentials_in_a_url_is_refused_for_settings_are_kept_in_clear(key: str) -> None:
    with pytest.raises(BadConfiguration, match=f"{key}.*carries credentials") as refused:
        Settings({key: "s3://KEY:SECRET@bucket/x"})
    assert "SECRET" not in str(refused.value)


def test_what_a_job_s_error_quotes_is_stored_without_them() -> None:
    store, stream = open_store(f"memory://{unique()}"), StreamName("orders")
    why = "cannot connect to jdbc:postgresql://anna:SECRET@db/sales"
    write_heartbeat(
        store,
        Heartbeat(
            stream=stream,
            generation=Generation(1),
            counter=1,
            state=StreamState.FAILED,
            at_ms=1,
            interval_ms=1,
            cause=why,
        ),
    )
    record_event(store, stream, Event(at_ms=1, what="restart", outcome="FAILED", by="driver", text=why))
    answer = Answer(id=RequestId("asked"), outcome=Outcome.FAILED, why=why, generation=1, at_ms=1)
    Mailbox(store, stream).reply(answer)
    stored = [store.read(info.path) for info in store.list("")]
    assert len(stored) == 3
    assert all(b"://...@db/sales" in data and b"SECRET" not in data for data in stored)


def test_which_settings_are_probably_secrets() -> None:
    secrets = (
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.box.acc",
        "spark.executorEnv.API_KEY",
        "spark.ssl.keyStorePassword",
        "spark.app.db.pwd",
    )
    plain = ("parallelism.default", "spark.executor.passes", "spark.app.key-by", "spark.sql.sasquatch")
    assert [is_secret(key) for key in (*secrets, *plain)] == [True] * len(secrets) + [False] * len(plain)
