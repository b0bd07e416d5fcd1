"""What two processes do at one moment on PostgreSQL is right, and it is the locks that see to it."""

from collections.abc import Callable

import pytest

from loom_worker.store.database import Database
from tests.races import races
from tests.races.crew import Crew, Race, emptied_locks

pytestmark = [pytest.mark.heavy, pytest.mark.integration, pytest.mark.takes(110)]

ROUNDS = 200
UNTIL_WRONG = 5_000
"""Rounds at most until one goes wrong; mostly it is one of the first, but busy processors run acts in turns."""
Make = Callable[[Database], Race]
LOCKED: tuple[Make, ...] = (
    races.ClaimOfALane,
    races.CloseOfCalls,
    races.CompareAndSet,
    races.RevisionOfANamespace,
    races.SubmitToANewSession,
    races.SubmitToASession,
    races.DepthOfALane,
    races.UsageOfASession,
    races.BudgetOfASession,
    races.ApprovalOfACall,
    races.CancelBesideAnEnd,
    races.CancelBesideAClaim,
    races.RetryOfATurn,
    races.TakersOfMessages,
    races.VersionsOfALearnedLayer,
    races.VersionsOfAnAgent,
    races.DeleteBesideSubmit,
    races.DisableBesideAClaim,
)
SAFE: tuple[Make, ...] = (
    races.KeyOverTwoSessions,
    races.BudgetOverSessions,
    races.SettlementsOfSeveralAccounts,
)
"""Right by a unique index, and by locks of rows."""


@pytest.mark.parametrize("make", LOCKED + SAFE)
def test_every_round_of_a_race_is_right(crew: Crew, make: Make) -> None:
    assert list(crew.wrong(make(crew.databases[0]), ROUNDS)) == []


@pytest.mark.parametrize("make", LOCKED)
def test_without_locks_the_same_race_goes_wrong(crew: Crew, postgres_url: str, make: Make) -> None:
    with emptied_locks(postgres_url):
        assert next(crew.wrong(make(crew.databases[0]), UNTIL_WRONG), None) is not None
