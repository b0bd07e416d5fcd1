from collections.abc import Sequence
from itertools import pairwise

import pytest

from loom_worker.cli.stage_tree import StageTree, event_line, question, window
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.runs import RunStage
from tests.support.fake_runs import RUN, START_MS, events, log_of, run, stage

NOW_S = START_MS / 1000 + 7


def lines(*stages: RunStage) -> list[str]:
    """The lines of the stages."""
    return StageTree.of(run(*stages)).lines(now_s=NOW_S)[1:]


def places(*keys: str) -> list[str]:
    """The lines of these stages without their columns."""
    return [line[2:].split("  default")[0].rstrip() for line in lines(*map(stage, keys))]


@pytest.mark.cases(
    "keys, shown",
    [
        (["stages.0", "stages.1"], ["stages.0", "stages.1"]),
        (["condition", "branch.stages.0"], ["condition", "branch", "  stages.0"]),
        (["entrypoint"], ["entrypoint"]),
        (
            ["stages.0", "stages.0.validation", "stages.0.retry.1", "stages.0.retry.1.validation", "stages.1"],
            ["stages.0", "  validation", "  retry.1", "    validation", "stages.1"],
        ),
        (
            ["stages.0", "stages.0.approval", "stages.0.revision.1", "stages.0.approval.2"],
            ["stages.0", "  approval", "  revision.1", "  approval.2"],
        ),
        (
            ["rounds.0.agents.0", "rounds.0.agents.1", "rounds.1.agents.0", "merge"],
            ["rounds.0", "  agents.0", "  agents.1", "rounds.1", "  agents.0", "merge"],
        ),
        (["votes.0", "votes.1", "votes.0.retry.1", "judge"], ["votes.0", "  retry.1", "votes.1", "judge"]),
        (
            ["iterations.0.stages.1", "iterations.1.stages.0"],
            ["iterations.0", "  stages.1", "iterations.1", "  stages.0"],
        ),
    ],
)
def test_each_stage_is_below_the_one_it_belongs_to(keys: Sequence[str], shown: list[str]) -> None:
    assert places(*keys) == shown


@pytest.mark.cases(
    "shown, line",
    [
        (stage("stages.0"), "· stages.0  default  7.0 s"),
        (stage("stages.0", "completed"), "✓ stages.0  default  2.0 s  1,234 tokens  $0.5000"),
        (
            stage("stages.0", "completed", is_reused=True),
            "✓ stages.0  default  2.0 s  1,234 tokens  $0.5000  from the run before",
        ),
        (
            stage("stages.0", "failed", reason="dead"),
            "✗ stages.0  default  2.0 s  1,234 tokens  $0.5000  failed (dead)",
        ),
        (
            stage("a", "failed", reason="guardrail", error={"message": "No."}),
            "✗ a  default  2.0 s  1,234 tokens  $0.5000  failed (guardrail, No.)",
        ),
        (stage("a", "incomplete", reason="limits"), "! a  default  2.0 s  1,234 tokens  $0.5000  incomplete (limits)"),
        (stage("a", "cancelled"), "– a  default  2.0 s  1,234 tokens  $0.5000  cancelled"),
        (stage("a.approval", "requires_action"), "? approval  default  7.0 s  waits for a decision"),
        (stage("a", "requires_action"), "? a  default  7.0 s  waits for the approval of a tool call"),
        (stage("a", "in_progress", completed_ms=None, usage=Usage()), "· a  default  7.0 s"),
    ],
)
def test_a_line_says_what_became_of_a_stage(shown: RunStage, line: str) -> None:
    assert " ".join(lines(shown)[-1].split()) == " ".join(line.split())


@pytest.mark.cases(
    "decision, comment, reason, told",
    [
        ("approve", None, None, "✓ approved"),
        ("reject", "Too long", None, "✗ rejected: Too long"),
        ("revise", "Shorter\nplease", None, "! sent back for revision: Shorter please"),
        ("reject", None, "expired", "✗ rejected, as nobody decided in time"),
    ],
)
def test_a_decision_is_told_with_its_reason(decision: str, comment: str | None, reason: str | None, told: str) -> None:
    decided = stage("a.approval", "completed", decision=decision, comment=comment, reason=reason)
    line = lines(decided)[-1]
    assert f"{line[0]} {line.partition(' s  ')[2]}" == told


def test_columns_stand_below_each_other() -> None:
    shown = lines(stage("stages.0", "completed", agent_id="größe"), stage("stages.0.retry.1", agent_id="商店助手"))
    assert shown == [
        "✓ stages.0   größe     2.0 s  1,234 tokens  $0.5000",
        "·   retry.1  商店助手  7.0 s",
    ]


def test_what_strangers_say_cannot_steer_the_terminal() -> None:
    evil = "a\x1b[2J\u202e\nb"
    bad = stage(f"stages.0.{evil}", "failed", agent_id=evil, reason=evil, error={"message": evil})
    asked = stage("a.approval", "requires_action", agent_id=evil, prompt=f"{evil}\r\x9b1m\u2028c")
    tree = StageTree.of(run(bad, asked) | {"workflow": evil, "reason": evil})
    told = [
        *tree.lines(now_s=NOW_S),
        *(line for _, line, _ in tree.rows(now_s=NOW_S)),
        *question(f"run_{evil}", asked.as_json()).split("\n"),
    ]
    told += [event_line(tree, each, now_s=NOW_S) for each in log_of(bad, asked, end=tree.run | {"status": "failed"})]
    assert [line for line in told if not line.isprintable()] == []


def test_the_headline_sums_what_was_paid_in_this_run() -> None:
    paid, reused = stage("stages.1", "completed"), stage("stages.0", "completed", is_reused=True)
    free = stage("stages.2", "completed", usage=Usage(input_tokens=1))
    tree = StageTree.of(run(reused, paid, free, status="failed", reason="stage"))
    assert tree.headline(now_s=NOW_S) == "run_1 flow: failed (stage), 5.0 s, 1,235 tokens, $0.5000"


def test_an_unknown_price_is_not_shown_as_none() -> None:
    tree = StageTree.of(
        run(stage("a", "completed"), stage("b", "completed", usage=Usage(input_tokens=5, cost_usd=None)))
    )
    assert tree.headline(now_s=NOW_S) == "run_1 flow: in progress, 7.0 s, 1,239 tokens"


def test_a_clock_that_is_behind_that_of_loom_shows_no_time_below_zero() -> None:
    assert "0.0 s" in StageTree.of(run(stage("a"))).lines(now_s=NOW_S - 60)[1]


def test_a_long_time_is_in_minutes() -> None:
    assert "1 min 40 s" in StageTree.of(run()).headline(now_s=START_MS / 1000 + 99.96)


def test_the_tree_grows_with_each_event_and_ends_as_the_run_is() -> None:
    done = stage("stages.0", "completed"), stage("stages.0.approval", "completed", decision="approve")
    log = log_of(*done, end=run(*done, stage("stages.1", "cancelled"), status="cancelled"))
    trees = [StageTree.of(run())]
    for event in log:
        trees.append(trees[-1].told(event))
    assert [len(tree.stages) for tree in trees] == [0, 0, 1, 1, 2, 2, 3]
    assert [tree.headline(now_s=NOW_S).split(",")[0].partition(": ")[2] for tree in trees[3:]] == [
        *("in progress", "waits for a decision", "in progress", "cancelled"),
    ]


def test_events_that_are_older_than_what_is_known_take_nothing_back() -> None:
    known = stage("stages.0", "completed"), stage("stages.0.approval", "completed", decision="approve")
    tree = StageTree.of(run(*known))
    for event in log_of(*known, end=run(*known, status="completed"))[:-1]:
        assert tree.told(event).stages == tree.stages


def test_a_stage_that_was_refused_before_it_began_is_there() -> None:
    (refused,) = events(("stage.failed", stage("stages.0", "failed", reason="guardrail").as_json()))
    assert [*StageTree.of(run()).told(refused).stages] == ["stages.0"]


@pytest.mark.parametrize("kind", ["stream.reset", "something.new", "stage.started"])
def test_an_event_without_a_stage_changes_nothing(kind: str) -> None:
    tree = StageTree.of(run(stage("a")))
    (event,) = events((kind, {}))
    assert tree.told(event) == tree
    assert event_line(tree, event, now_s=NOW_S) == ""


def test_each_event_is_a_line_for_those_who_see_no_tree() -> None:
    done = stage("stages.0", "completed"), stage("stages.0.approval", "completed", decision="approve")
    tree, told = StageTree.of(run()), []
    for event in log_of(*done, end=run(*done, status="completed")):
        tree = tree.told(event)
        told.append(event_line(tree, event, now_s=NOW_S))
    assert told == [
        "run_1 flow: in progress, 7.0 s",
        "· stages.0  default",
        "✓ stages.0  default  2.0 s  1,234 tokens  $0.5000",
        "? stages.0.approval  default  7.0 s  waits for a decision",
        "✓ stages.0.approval  default  2.0 s  approved",
        "run_1 flow: completed, 5.0 s, 1,234 tokens, $0.5000",
    ]


def test_a_question_to_a_person_shows_what_is_asked_until_when_and_how_to_answer() -> None:
    asked = stage("stages.0.approval", "requires_action", prompt="Publish?\n\nNews", approve_by_ms=START_MS)
    assert question(RUN, asked.as_json()).splitlines() == [
        "stages.0.approval waits for a decision on what default said until 2027-01-15T08:00:00.000Z:",
        "  Publish?",
        "",
        "  News",
        "decide with `loom runs approve run_1 stages.0.approval`; or `reject`, or `revise` with --reason",
    ]


@pytest.mark.cases("height", range(1, 12))
def test_a_tree_that_is_higher_than_the_terminal_shows_its_head_and_its_end(height: int) -> None:
    whole = [(1, str(number), "") for number in range(8)]
    shown = [line for _, line, _ in window(whole, height)]
    assert len(shown) == min(height, 8)
    assert shown[0] == "0"
    if 3 <= height < 8:
        assert shown[1] == f"… {8 - height + 1} lines not shown"
        assert [int(after) - int(before) for before, after in pairwise(shown[2:])] == [1] * (height - 3)
        assert shown[-1] == "7"
