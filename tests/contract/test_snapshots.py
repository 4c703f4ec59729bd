"""What a snapshot is by itself: whose ends delete it, and where its files lie."""

from __future__ import annotations

import pytest

from headgate_contract.snapshot import ExternalizedCheckpointRetention, StateHandle
from tests.contract.lives import snapshot

DELETING = {
    ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION: False,
    ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION: True,
    ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS: True,
}


@pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
def test_a_cancel_deletes_checkpoints_unless_they_are_retained_on_cancellation(
    retention: ExternalizedCheckpointRetention,
) -> None:
    assert retention.deletes is DELETING[retention]


def test_a_checkpoints_files_are_named_from_the_root_and_a_savepoints_from_its_own_folder() -> None:
    handle = StateHandle("s0", "streams/orders/shared/s0", 1, "0" * 64)
    assert snapshot(3).path(handle) == "streams/orders/shared/s0"
    taken = snapshot(4, name="nightly")
    own = StateHandle("s0", "state/s0", 1, "0" * 64)
    assert taken.path(own) == f"{taken.folder}/state/s0", "it can be moved, with all of its files"
