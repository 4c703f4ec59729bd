"""The connection type `headgate`: a storage root with its options, and the control plane on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import BaseHook, Connection

from headgate_airflow.fleet import ROOT
from headgate_airflow.provider import get_provider_info
from headgate_contract.errors import BadConfiguration, HeadgateError, NotARoot
from headgate_contract.store import ObjectStore, open_lasting_store
from headgate_control import Control

CONNECTION_TYPE = "headgate"
_SECRETS = {"login": "key", "password": "secret"}
"""The form's fields for an S3 key, and what fsspec calls them."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A root and how to reach it. The options may hold secrets: they are never logged and never given to a trigger."""

    root: str
    options: Mapping[str, Any] | None = field(default=None, repr=False)
    """None leaves them to the environment ($HEADGATE_ROOT_OPTIONS)."""

    def open(self) -> ObjectStore:
        return open_lasting_store(self.root, self.options)


class HeadgateHook(BaseHook):
    """Opens the control plane of `root`, or of the root that the connection names, with the connection's options.

    Without a connection the options come from the environment, as they do for the drivers.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "headgate_default"
    conn_type = CONNECTION_TYPE
    hook_name = "Headgate"

    def __init__(self, conn_id: str | None = None, *, root: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.root = root

    @property
    def storage(self) -> Storage:
        """Looks the connection up each time. Raises BadConfiguration if no root is named anywhere."""
        if self.conn_id is not None:
            return storage_of_connection(self.get_connection(self.conn_id), self.root)
        if self.root is None:
            raise BadConfiguration(
                "no storage root is named", hint=f"set `root` in streams.yaml, ${ROOT}, or a connection's conn_id"
            )
        return Storage(self.root)

    def get_conn(self) -> Control:
        """The control plane, for a hook that stands alone; operators say who they are with control()."""
        return self.control(by=f"airflow connection {self.conn_id}")

    def control(self, by: str) -> Control:
        """The control plane, on behalf of `by`."""
        storage = self.storage
        return Control.open(storage.root, options=storage.options, by=by)

    def test_connection(self) -> tuple[bool, str]:
        """Can this side read and write the root? Drivers must be able to as well."""
        try:
            storage = self.storage
            storage.open().check_writable()
            try:
                known = self.control(by="airflow connection test").streams()
            except NotARoot as error:
                return True, f"{storage.root} can be read and written; {error}"
        except HeadgateError as error:
            return False, str(error)
        return True, f"{storage.root} can be read and written; {len(known)} streams are deployed there"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        [form] = get_provider_info()["connection-types"]
        behaviour = form["ui-field-behaviour"]
        return {"hidden_fields": behaviour["hidden-fields"], "relabeling": behaviour["relabeling"], "placeholders": {}}


def storage_of_connection(connection: Connection, root: str | None = None) -> Storage:
    """The storage that a connection of type `headgate` names; `root`, if the caller knows it, goes before its own."""
    name = f"connection {connection.conn_id}"
    extra = connection.extra_dejson
    root = root or extra.get("root") or connection.host
    if not isinstance(root, str) or not root.strip():
        raise BadConfiguration(f"{name} names no storage root", hint="fill in its root: a folder or s3://bucket/prefix")
    unknown = sorted(set(extra) - {"root", "options"})
    if unknown:
        raise BadConfiguration(
            f"{name} has unknown fields: {', '.join(unknown)}",
            hint="allowed are root and options; what is meant for fsspec goes into options",
        )
    options = _options(extra.get("options") or {}, name)
    secrets = {option: value for part, option in _SECRETS.items() if (value := getattr(connection, part))}
    return Storage(root.strip(), {**options, **secrets} or None)


def _options(given: object, name: str) -> dict[str, Any]:
    """The options, which the UI's form may hand over as text."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except json.JSONDecodeError as error:
            raise BadConfiguration(f"{name}: its options are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadConfiguration(f"{name}: its options are a {type(given).__name__}", hint="they are a JSON object")
    return given
