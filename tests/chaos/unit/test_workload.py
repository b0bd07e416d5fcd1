"""The plan of turns."""

from typing import Any

from tests.chaos import workload
from tests.chaos.workload import Job, Mix


def jobs(**shares: Any) -> list[Job]:
    sessions = workload.plan(400, sessions=7, seed=3, mix=Mix(**shares))
    return [job for dealt in sessions.values() for job in dealt]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert workload.plan(50, sessions=4, seed=1) == workload.plan(50, sessions=4, seed=1)
    assert workload.plan(50, sessions=4, seed=1) != workload.plan(50, sessions=4, seed=2)


def test_every_turn_is_dealt_once_and_to_its_session_in_order() -> None:
    sessions = workload.plan(200, sessions=5, seed=1, first=30)
    marks = [job.mark for dealt in sessions.values() for job in dealt]
    assert sorted(marks) == [f"T{n:05d}" for n in range(30, 230)]
    assert all([job.mark for job in dealt] == sorted(job.mark for job in dealt) for dealt in sessions.values())
    assert workload.count(sessions) == 200


def test_a_turn_is_submitted_twice_only_under_a_key() -> None:
    twice = [job for job in jobs(twice=0.5, keyless=0.5) if job.is_sent_twice]
    assert twice
    assert all(job.has_key for job in twice)


def test_a_turn_that_asks_a_person_is_never_lost_to_its_client() -> None:
    asking = [job for job in jobs(keyless=1.0) if job.asks_person]
    assert asking
    assert all(job.has_key for job in asking)


def test_turns_that_kill_may_fail_and_are_as_many_as_asked_for() -> None:
    deadly = [job for job in jobs(poison=3) if job.says == "tools=die"]
    assert len(deadly) == 3
    assert all(job.may_fail and job.max_attempts == 3 for job in deadly)


def test_judges_and_budgets_are_a_sessions_own() -> None:
    sessions = workload.plan(200, sessions=10, seed=1, mix=Mix(judged=0.3, thrifty=0.2)).values()
    assert sorted(dealt[0].agent for dealt in sessions) == [""] * 7 + ["judged"] * 3
    assert sum(dealt[0].session_tokens is not None for dealt in sessions) == 2
    for dealt in sessions:
        assert len({(job.agent, job.session_tokens) for job in dealt}) == 1
        assert all(("judged=" in job.says) == bool(job.agent) for job in dealt)
        assert all(job.may_fail for job in dealt if job.session_tokens)


def test_turns_on_a_budget_may_fail() -> None:
    budgeted = [job for job in jobs(budgeted=0.5) if job.turn_tokens]
    assert budgeted
    assert all(job.may_fail for job in budgeted)


def test_shares_of_zero_give_none() -> None:
    plain = jobs(webhooks=0, keyless=0, twice=0, read=0)
    assert not any(job.agent or job.session_tokens or job.turn_tokens or job.is_read for job in plain)
    assert not any(job.hook or job.is_sent_twice or job.cancel_action or job.double_texting for job in plain)
    assert all(job.has_key for job in plain)
