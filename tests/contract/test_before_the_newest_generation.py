"""A restore that comes to nothing is taken back to the generation before: a fold forgets nothing that this needs."""

from __future__ import annotations

from headgate_contract.ids import Generation
from tests.contract.lives import Lives


def test_of_the_generation_before_a_summary_tells_what_it_ran_and_who_stopped_it() -> None:
    lives = Lives()
    lives.deploy()
    lives.start()
    taken = lives.checkpoint()
    lives.want_stop(Generation(1))
    lives.stop(taken)
    lives.deploy("rescaled.py")
    lives.start(taken)
    whole = lives.catalogue
    lives.fold()
    folded = lives.catalogue
    assert folded.deployed_at(1) == whole.deployed_at(1) is not None
    assert folded.deployed_at(3) == whole.deployed is not None
    assert folded.stops_wanted(Generation(1)) == whole.stops_wanted(Generation(1)) != ()
    lives.start(taken)
    lives.fold()
    assert lives.catalogue.stops_wanted(Generation(1)) == (), "but of those long before"
