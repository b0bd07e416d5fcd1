"""A run's stages as a tree in text: what each of them does, for how long, and what it cost. Pure.

Each ``now_s`` is in seconds since 1970.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from loom_worker.cli.show import GUIDE, duration
from loom_worker.core.text import clean, one_line
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event

WIDEST_NAME = 24
"""Characters of an agent's name."""
_MARKS = {"completed": "✓", "failed": "✗", "cancelled": "–", "incomplete": "!", "requires_action": "?"}
_STYLES = {"✓": "green", "✗": "red", "?": "yellow", "!": "yellow"}
_UNDER_WAY = "·"
DECIDED = {"approve": "approved", "reject": "rejected", "revise": "sent back for revision"}
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True, slots=True)
class StageTree:
    """A run as far as it is known."""

    run: Json
    """As the API shows it; its ``stages`` may be older than those here."""
    stages: Mapping[str, Json]
    """By id, in the order in which they began."""

    @classmethod
    def of(cls, run: Json) -> "StageTree":
        """The tree of a run as the API shows it."""
        return cls(run, {stage["id"]: stage for stage in run.get("stages", ())})

    def told(self, event: Event) -> "StageTree":
        """The tree after an event of the run; one that is older than what is known changes nothing."""
        if event.is_final:
            return StageTree.of(event.data)
        stage_id = event.data.get("id")
        is_first = event.type in ("stage.started", "approval.required")
        if stage_id is None or (is_first and stage_id in self.stages):
            return self
        return replace(self, stages={**self.stages, stage_id: event.data})

    def waiting(self) -> tuple[Json, ...]:
        """The approvals that a person is to give."""
        return tuple(stage for stage in self.stages.values() if _waits(stage))

    def lines(self, *, now_s: float) -> list[str]:
        """The run in a line, and a line for each stage below the one it belongs to."""
        stages = (f"{mark} {'  ' * depth}{text}" for depth, mark, text in self._stages(now_s, indent=2))
        return [self.headline(now_s=now_s), *stages]

    def rows(self, *, now_s: float) -> list[tuple[int, str, str]]:
        """The same for a tree on a terminal: the depth of each line, its text and its style."""
        stages = self._stages(now_s, indent=GUIDE)
        rows = ((depth + 1, f"{mark} {text}", _STYLES.get(mark, "")) for depth, mark, text in stages)
        return [(0, self.headline(now_s=now_s), "bold"), *rows]

    def _stages(self, now_s: float, *, indent: int) -> Iterator[tuple[int, str, str]]:
        """The depth of each stage, its mark, and its columns; the first one gets narrower with each level."""
        from rich.cells import cell_len, set_cell_size

        rows = [(depth, _row(label, stage, now_s)) for depth, label, stage in _nodes(self.stages)]
        places = max((indent * depth + cell_len(row[1]) for depth, row in rows), default=0)
        agents, times = (max((cell_len(row[at]) for _, row in rows), default=0) for at in (2, 3))
        for depth, (mark, place, agent, took, *rest) in rows:
            columns = (set_cell_size(place, places - indent * depth), set_cell_size(agent, agents), took.rjust(times))
            yield depth, mark, "  ".join([*columns, *rest]).rstrip()

    def headline(self, *, now_s: float) -> str:
        """The run in a line: what it is called, its status, how long it took, its tokens, its cost."""
        run, paid = self.run, [stage["usage"] for stage in self.stages.values() if not stage["reused"]]
        reason = f" ({run['reason']})" if run.get("reason") else ""
        status = "waits for a decision" if self.waiting() else f"{run['status'].replace('_', ' ')}{reason}"
        parts = [f"{run['id']} {run['workflow']}: {status}", _took(run, now_s), *_spent(paid)]
        return one_line(", ".join(parts), 500)


def event_line(tree: StageTree, event: Event, *, now_s: float) -> str:
    """What an event says, in a line for those who see no tree, which is that after it; empty if it says nothing."""
    stage = tree.stages.get(str(event.data.get("id")))
    if event.is_final or event.type == "run.started":
        return tree.headline(now_s=now_s)
    if stage is None:
        return ""
    if event.type == "stage.started":
        return f"{_UNDER_WAY} {one_line(stage['id'])}  {_agent(stage)}"
    mark, *columns = _row(one_line(stage["id"]), stage, now_s)
    return f"{mark} {'  '.join(filter(None, columns))}"


def question(run_id: str, stage: Json) -> str:
    """What a person needs to decide on a stage's output: what it is, until when, and how to say so."""
    until = f" until {stage['approve_by']}" if stage.get("approve_by") else ""
    shown = clean(str(stage.get("prompt") or stage.get("output_text") or "")).splitlines()
    stage_id = one_line(stage["id"])
    return "\n".join(
        [
            f"{stage_id} waits for a decision on what {_agent(stage)} said{until}:",
            *(f"  {line}".rstrip() for line in shown),
            f"decide with `loom runs approve {one_line(run_id)} {stage_id}`; or `reject`, or `revise` with --reason",
        ]
    )


def window(rows: Sequence[tuple[int, str, str]], height: int) -> list[tuple[int, str, str]]:
    """As many rows as a terminal can rewrite: the first, and the last ones of a tree that is higher."""
    left_out = len(rows) - height
    if left_out <= 0 or height < 3:
        return list(rows[: max(height, 1)])
    return [rows[0], (1, f"… {left_out + 1} lines not shown", "dim"), *rows[left_out + 2 :]]


def _nodes(stages: Mapping[str, Json]) -> Iterator[tuple[int, str, Json | None]]:
    """The depth and name of each place of the tree, from the top down; one that only holds others has no stage."""
    places: dict[tuple[str, ...], Json | None] = {}
    below: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for stage_id, stage in stages.items():
        path = _path(stage_id)
        for depth in range(1, len(path) + 1):
            if path[:depth] not in places:
                places[path[:depth]] = None
                below.setdefault(path[: depth - 1], []).append(path[:depth])
        places[path] = stage
    pending = below.get((), [])[::-1]
    while pending:
        path = pending.pop()
        yield len(path) - 1, one_line(path[-1], WIDEST_NAME), places[path]
        pending += below.get(path, [])[::-1]


def _path(stage_id: str) -> tuple[str, ...]:
    """The steps of an id, each a name with the number behind it: ``rounds.1``, ``agents.2``."""
    steps: list[str] = []
    for part in stage_id.split("."):
        if steps and part.isdigit() and "." not in steps[-1]:
            steps[-1] += f".{part}"
        else:
            steps.append(part)
    return tuple(steps)


def _row(label: str, stage: Json | None, now_s: float) -> list[str]:
    """The columns of a line: mark, place, agent, time, and whatever else there is to say."""
    if stage is None:
        return [" ", label, "", ""]
    mark = _MARKS.get(stage["status"], _UNDER_WAY)
    if stage.get("decision") in ("reject", "revise"):
        mark = _MARKS["failed" if stage["decision"] == "reject" else "incomplete"]
    more = [*_spent([stage["usage"]]), *_words(stage)]
    named = one_line(stage.get("name") or "", WIDEST_NAME)
    # A stage without a name in the file has its agent's, with a number if there are several.
    is_own = not re.fullmatch(
        rf"(?:{re.escape(stage['agent_id'].partition(':')[2] or stage['agent_id'])})?(-\d+)?", named
    )
    who = f"{named} ({_agent(stage)})" if is_own else _agent(stage)
    return [mark, label, who, _took(stage, now_s), *more]


def _words(stage: Json) -> Iterator[str]:
    if stage["reused"]:
        yield "from the run before"
    if _waits(stage):
        yield "waits for a decision"
    elif stage["status"] == "requires_action":
        yield "waits for the approval of a tool call"
    elif stage.get("decision"):
        by_time = ", as nobody decided in time" if stage.get("reason") == "expired" else ""
        comment = f": {stage['comment']}" if stage.get("comment") else ""
        yield one_line(f"{DECIDED.get(stage['decision'], stage['decision'])}{by_time}{comment}")
    elif stage["status"] in ("failed", "cancelled", "incomplete"):
        yield one_line(f"{stage['status']}{_why(stage)}")


def _why(stage: Json) -> str:
    said = (stage.get("error") or {}).get("message")
    why = ", ".join(str(part) for part in (stage.get("reason"), said) if part)
    return f" ({why})" if why else ""


def _waits(stage: Json) -> bool:
    return (stage["role"], stage["status"]) == ("approval", "requires_action")


def _took(thing: Json, now_s: float) -> str:
    """How long a stage or run took, or has taken so far, in a form whose width hardly changes while it goes on."""
    if thing.get("duration_ms") is not None:
        seconds: float = thing["duration_ms"] / 1000
    else:  # the clock of this machine may be behind that of Loom's
        seconds = max(0.0, now_s - datetime.fromisoformat(thing["created_at"]).timestamp())
    return f"{seconds:.1f} s" if seconds < 99.95 else duration(round(seconds))


def _spent(usages: Sequence[Json]) -> Iterator[str]:
    """Tokens and cost, as far as there are any and the price is known."""
    tokens = sum(usage.get(name) or 0 for usage in usages for name in _TOKENS)
    costs = [usage.get("cost_usd") for usage in usages]
    if tokens:
        yield f"{tokens:,} tokens"
    if None not in costs and (usd := sum(cost or 0 for cost in costs)):
        yield f"${usd:.4f}"


def _agent(stage: Json) -> str:
    return one_line(stage["agent_id"], WIDEST_NAME)
