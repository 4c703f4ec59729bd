"""The facade of the control plane: one method for each verb, used by the CLI and by Airflow alike."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate_contract.durations import Duration
from headgate_contract.errors import HeadgateError, LaunchFailed
from headgate_contract.ids import CheckpointId, RequestId, SavepointName, StreamName
from headgate_contract.mailbox import Answer, Request, RequestKind
from headgate_contract.records import Deployed
from headgate_contract.restore import ClaimMode, Located
from headgate_contract.root_store import RootStore, open_root
from headgate_contract.roots import checked_root
from headgate_contract.snapshot import SavepointOrigin, SnapshotRef
from headgate_control.as_it_ran import AsItRan
from headgate_control.catalogues import Catalogues
from headgate_control.deploy import Checker, Deployer, Programs, warnings_of
from headgate_control.environment import OPTIONS, environment_of_drivers, options_of
from headgate_control.foreseeing import Foresight
from headgate_control.journal import Journal
from headgate_control.launch import Launcher
from headgate_control.locating import absolute_directory
from headgate_control.looking import Looking, question_of
from headgate_control.outcomes import Asked, Launched, NotNeeded, RepairReport, RootReport
from headgate_control.repairing import Repairer
from headgate_control.requests import Requests, in_directory, savepoint_name
from headgate_control.restoring import Restorer
from headgate_control.starting import Order, Starter
from headgate_control.status import Observer
from headgate_control.stopping import StopOrder, Stopper
from headgate_control.telling import somebody
from headgate_control.watch import Watch


class Control(Looking):
    """The control plane of one storage root. Methods may be called from several threads.

    Every method that names a stream raises StreamUnknown if it was never deployed on this root.
    """

    def __init__(self, store: RootStore, *, programs: Programs, added: Mapping[str, str], by: str) -> None:
        """See open(). `added` goes into the environment of drivers."""
        environment = environment_of_drivers(os.environ, added)
        catalogues = Catalogues(store)
        self._journal = Journal(store, catalogues.newest_known)
        observer = Observer(store, catalogues, Watch())
        self._requests = Requests(store=store, catalogues=catalogues, observer=observer)
        checker = Checker(programs=programs, environment=environment)
        deployer = Deployer(store=store, catalogues=catalogues, checker=checker)
        foresight = Foresight(store=store, catalogues=catalogues)
        super().__init__(
            store=store, catalogues=catalogues, observer=observer, deployer=deployer, foresight=foresight, by=by
        )
        self._starter = Starter(
            store=store,
            catalogues=catalogues,
            observer=observer,
            launcher=Launcher(
                store=store, programs=programs, environment=environment, work=os.environ.get("HEADGATE_WORK")
            ),
            journal=self._journal,
        )
        self._repairer = Repairer(store=store, catalogues=catalogues, checker=checker, journal=self._journal)
        self._stopper = Stopper(
            catalogues=catalogues, observer=observer, requests=self._requests, journal=self._journal
        )
        self._restorer = Restorer(
            store=store,
            catalogues=catalogues,
            observer=observer,
            starter=self._starter,
            stopper=self._stopper,
            deployer=deployer,
            journal=self._journal,
            foresight=foresight,
            as_it_ran=AsItRan(
                catalogues=catalogues,
                observer=observer,
                starter=self._starter,
                deployer=deployer,
                journal=self._journal,
            ),
        )

    @classmethod
    def open(
        cls,
        root: str,
        *,
        options: Mapping[str, Any] | None = None,
        by: str | None = None,
        programs: Programs | None = None,
    ) -> Control:
        """The control plane of `root` (what checked_root takes); `by` says who asks, in logs and history.

        `options` go to fsspec (endpoint, credentials), here and in the drivers; $HEADGATE_ROOT_OPTIONS by default.
        """
        chosen = dict(options) if options is not None else options_of(os.environ)
        store = open_root(checked_root(root), chosen)
        added = {OPTIONS: json.dumps(chosen)} if chosen else {}
        return cls(store, programs=programs or Programs(), added=added, by=by or somebody())

    # -- deploy, start, restore, recover

    def deploy(
        self,
        stream: str,
        job: Path,
        settings: Mapping[str, object],
        *,
        directory: Path | None = None,
        adopt_root: bool = False,
        by: str | None = None,
    ) -> Deployed:
        """Validate `job` with `settings` in a subprocess and record it as what `stream` runs from its next start on.

        Repeating it changes nothing. A running generation goes on as it is. The plan's `warnings` are for people.
        The first deployment makes the root; what holds streams and does not say which root it is becomes one only with
        `adopt_root`. Raises BadInput or StorageUnreachable.
        """
        name, asker, folder = StreamName(stream), by or self._by, directory or Path.cwd()
        done = None
        if not self._deployer.has_root():
            done = self._deployer.deploy_first(name, job, settings, folder, asker, adopt=adopt_root)
        else:
            self._store.check_writable()
            if not self._catalogues.look(name).decisions:  # a name that was mistyped leaves nothing behind
                done = self._deployer.deploy(name, job, settings, folder, asker)
        with self._journal.action(name, "deploy", asker, {"job": str(job)}) as note:
            number, deployed = done or self._deployer.deploy(name, job, settings, folder, asker)
            note.text = deployed.job
            note.details.update(decision=number, warnings=warnings_of(deployed))
        return deployed

    def start(
        self,
        stream: str,
        *,
        fresh: bool = False,
        fall_back: bool | None = None,
        accept_duplicates: bool = False,
        allow_non_restored_state: bool = False,
        wait: bool = True,
        kill_old: bool = True,
        by: str | None = None,
    ) -> Launched:
        """Launch the next generation by the rules of restore, and wait until its driver runs.

        Raises StreamRunning (who, where, since when), RestoreRefused, LaunchFailed. A start that failed leaves the
        stream down until it is started again. A log that cannot be read is repaired before a start that is `fresh`:
        its snapshots stay, and `warnings` tell of it. `kill_old=False` leaves a lost driver's process alone: it is
        fenced all the same.
        """
        question = question_of(
            fresh=fresh,
            fall_back=fall_back,
            accept_duplicates=accept_duplicates,
            allow_non_restored_state=allow_non_restored_state,
        )
        order = Order(by=by or self._by, question=question, wait=wait, kill_old=kill_old)
        repaired = self._repairer.before_a_fresh_start(StreamName(stream), order.by) if fresh else ()
        launched = self._starter.start(StreamName(stream), order)
        return replace(launched, warnings=(*repaired, *launched.warnings))

    def repair(self, stream: str, *, execute: bool = False, by: str | None = None) -> RepairReport:
        """What would make a damaged log whole, or go on with a sink that is ahead of it; with `execute`, do it.

        Nothing is deleted: what something else is written in the place of is kept. Raises StreamRunning.
        """
        name, asker = StreamName(stream), by or self._by
        return self._repairer.repair(name, asker) if execute else self._repairer.plan(name, asker)

    def repair_root(self, *, execute: bool = False, by: str | None = None) -> RootReport:
        """What would put right the file that says which root this is; with `execute`, do it. Raises NotARoot."""
        return self._repairer.root(by or self._by, execute=execute)

    def restore(  # noqa: PLR0913 - one for each option
        self,
        stream: str,
        *,
        snapshot: CheckpointId | SavepointName | Located | None = None,
        savepoint_first: bool = True,
        parallelism: int | None = None,
        fall_back: bool | None = None,
        accept_duplicates: bool = False,
        allow_non_restored_state: bool = False,
        claim_mode: ClaimMode = ClaimMode.NO_CLAIM,
        allow_place: bool = False,
        stopped_by: RequestId | None = None,
        wait: bool = True,
        kill_old: bool = True,
        by: str | None = None,
    ) -> Launched:
        """start() from the named snapshot; a stream that runs is stopped first, with a savepoint by default.

        Another `parallelism` is recorded as a deployment of the same job, checked before anything is stopped.
        `claim_mode` says whose a savepoint is from then on. `allow_place` lets a snapshot that is named by its URL lie
        where no setting says, for this once: for whoever answers for what is opened with the driver's rights. If it is
        refused behind its stop (also one of the caller's own: the request `stopped_by`), or its driver does not come
        up, the stream is started again as it ran, and the error says so. If somebody else wants it stopped meanwhile,
        it stays stopped.
        """
        question = question_of(
            snapshot,
            fall_back=fall_back,
            accept_duplicates=accept_duplicates,
            allow_non_restored_state=allow_non_restored_state,
            claim_mode=claim_mode,
            allow_place=allow_place,
        )
        order = Order(by=by or self._by, question=question, wait=wait, kill_old=kill_old)
        return self._restorer.restore(
            StreamName(stream),
            order,
            savepoint_first=savepoint_first,
            parallelism=parallelism,
            stopped_by=stopped_by,
        )

    def check_restore(
        self,
        stream: str,
        *,
        snapshot: CheckpointId | SavepointName | Located | None = None,
        savepoint_first: bool = True,
        parallelism: int | None = None,
        **how: Any,
    ) -> CheckpointId | None:
        """Raise what restore() with this and `how` would, before it touched anything; what a stop must `keep`."""
        order = Order(by=self._by, question=question_of(snapshot, **how))
        return self._restorer.check(StreamName(stream), order, savepoint_first=savepoint_first, parallelism=parallelism)

    def take_back(
        self, stream: str, stop: RequestId, error: LaunchFailed, *, wait: bool = True, by: str | None = None
    ) -> HeadgateError:
        """What to raise of a restore without wait whose driver did not come up: `error`, and what became of the stream.

        If the request `stop` has stopped it for that, it is started again as it ran. `by` ordered it, and nothing else.
        """
        order = Order(by=by or self._by, wait=wait)
        return self._restorer.take_back(StreamName(stream), order, stop, error)

    def recover(
        self, stream: str, *, wait: bool = True, kill_old: bool = True, by: str | None = None
    ) -> Launched | NotNeeded:
        """Tier 2: if `stream` is lost and its outer restart strategy allows it, launch the next generation.

        Any number of callers may try at once: one launches, the others learn who did.
        """
        order = Order(by=by or self._by, wait=wait, kill_old=kill_old)
        return self._starter.recover(StreamName(stream), order)

    # -- requests

    def ask(
        self,
        stream: str,
        kind: RequestKind,
        *,
        id: RequestId | None = None,
        args: Mapping[str, Any] | None = None,
        deadline: Duration | None = None,
        by: str | None = None,
    ) -> Request:
        """Leave a request for the running driver. The request that counts is returned: its id may be another ordinal.

        Repeating an id finds the first request. Raises StreamNotRunning if there is no live driver and no answer yet.
        """
        return self._requests.ask(StreamName(stream), kind, by=by or self._by, id=id, args=args, deadline=deadline)

    def is_asked(self, stream: str, id: RequestId) -> bool:
        """Whether this was asked for, and has not failed since."""
        return self._requests.is_asked(StreamName(stream), id)

    def answer(self, stream: str, id: RequestId) -> Answer | None:
        """The answer to request `id`, or None while there is none.

        A request whose slot is in the log counts as answered, even if its driver died before it wrote the answer.
        """
        return self._requests.answer(StreamName(stream), id)

    def taken_for(self, stream: str, id: RequestId) -> SnapshotRef | None:
        """The snapshot that was completed for request `id`, also of a stop that has failed behind it."""
        return self._requests.taken_for(StreamName(stream), id)

    def wait(self, stream: str, id: RequestId, timeout_s: float) -> Answer:
        """Wait for the answer. Raises RequestFailed (also if the driver dies meanwhile) or RequestTimedOut."""
        return self._requests.wait(StreamName(stream), id, timeout_s)

    def checkpoint(
        self,
        stream: str,
        *,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Have a checkpoint taken now."""
        return self._snapshot(StreamName(stream), RequestKind.CHECKPOINT, {}, id, wait, timeout_s, by or self._by)

    def savepoint(
        self,
        stream: str,
        name: str | None = None,
        *,
        origin: SavepointOrigin = SavepointOrigin.PERSON,
        target_directory: str | None = None,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Have a savepoint taken, under `name` or one made up from the moment.

        `target_directory` is a URL that the driver opens with the root's options; below the root by default.
        """
        chosen, target = savepoint_name(name or True), absolute_directory(target_directory)
        args = {"name": chosen, "origin": origin.value} | in_directory(target)
        return self._snapshot(StreamName(stream), RequestKind.SAVEPOINT, args, id, wait, timeout_s, by or self._by)

    def stop(  # noqa: PLR0913 - one for each option
        self,
        stream: str,
        *,
        savepoint: bool | str = False,
        drain: bool = False,
        target_directory: str | None = None,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        keep: CheckpointId | None = None,
        to_restore: bool = False,
        by: str | None = None,
    ) -> Asked:
        """Want the stream stopped, then ask its driver to stop at the next barrier; `savepoint` may give a name.

        From the first moment nobody restarts it. Of a stream without a live driver this says so in `note`, or raises
        StreamNotRunning if a savepoint was asked for; it stays stopped either way. `target_directory` is as in
        savepoint(). With `drain` the operators finish first, of a stream that is not to go on. What is
        stopped `to_restore` it goes on, unless somebody else stops it meanwhile, and its end does not retire `keep`.
        """
        order = StopOrder(
            by=by or self._by,
            savepoint=savepoint,
            drain=drain,
            target=absolute_directory(target_directory),
            id=id,
            wait=wait,
            timeout_s=timeout_s,
            keep=keep,
            to_restore=to_restore,
        )
        return self._stopper.stop(StreamName(stream), order)

    def cancel(
        self,
        stream: str,
        *,
        id: RequestId | None = None,
        wait: bool = True,
        timeout_s: float | None = None,
        by: str | None = None,
    ) -> Asked:
        """Want the stream stopped, and end its driver without a last snapshot."""
        order = StopOrder(by=by or self._by, id=id, wait=wait, timeout_s=timeout_s)
        return self._stopper.cancel(StreamName(stream), order)

    def _snapshot(
        self,
        stream: StreamName,
        kind: RequestKind,
        args: Mapping[str, Any],
        id: RequestId | None,
        wait: bool,
        timeout_s: float | None,
        by: str,
    ) -> Asked:
        catalogue = self._catalogues.read(stream)
        with self._journal.action(stream, kind.value, by, args) as note:
            request = self._requests.ask(stream, kind, by=by, id=id, args=args)
            note.generation, note.details["request"] = request.generation, request.id
            if not wait:
                return Asked(stream=stream, request=request)
            patience = timeout_s if timeout_s is not None else self._requests.patience(catalogue).seconds
            answer = self._requests.wait(stream, request.id, patience)
            note.details.update(answer.result)
            return Asked(stream=stream, request=request, answer=answer)
