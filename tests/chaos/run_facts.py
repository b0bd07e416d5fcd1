"""What the database says of workflow runs; facts.py reads it, in the same snapshot as everything else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loom_worker.core.values.runs import Run
from loom_worker.store.runs import run_of, stage_of

Row = dict[str, Any]
Tables = Mapping[str, tuple[Row, ...]]

AUDITED = """
SELECT subject, agent, action, status, reason FROM audit WHERE action LIKE 'run.%'
UNION ALL SELECT subject, agent, action, status, reason FROM audit_inbox WHERE action LIKE 'run.%'
"""
"""Rows of runs, those included that are not chained yet."""
UNSAID = frozenset({"approval"})
"""Roles of stages that are no turns."""


@dataclass(frozen=True)
class RunFact:
    """A run with everything that hangs on it, but for its turns."""

    row: Row
    stages: tuple[Row, ...]
    """In the order in which they began."""
    events: tuple[Row, ...]
    deliveries: tuple[Row, ...]
    audit: tuple[Row, ...]
    spans: tuple[Row, ...]
    """Those named ``workflow.run``."""

    @property
    def id(self) -> str:
        """The run's id."""
        return str(self.row["id"])

    @property
    def status(self) -> str:
        """As the API names it."""
        return str(self.row["status"])

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.row['metadata'].get('name', '(no name)')} {self.id} ({self.row['workflow']})"

    @property
    def asked(self) -> tuple[Row, ...]:
        """The stages that are turns."""
        return tuple(stage for stage in self.stages if stage["role"] not in UNSAID)

    @cached_property
    def by_key(self) -> Mapping[str, Row]:
        """Stages by their keys."""
        return {stage["key"]: stage for stage in self.stages}

    @cached_property
    def run(self) -> Run:
        """As Loom reads it."""
        return run_of(self.row, [stage_of(stage) for stage in self.stages])

    @cached_property
    def shown(self) -> Row:
        """The Run of the HTTP API, as a client parses it."""
        shown: Row = json.loads(json.dumps(self.run.as_json()))
        return shown


def runs_of(tables: Tables, audit: tuple[Row, ...]) -> tuple[RunFact, ...]:
    """All runs."""
    return tuple(
        RunFact(
            row=row,
            stages=_of(tables["run_stages"], "run_id", row["id"]),
            events=_of(tables["run_events"], "run_id", row["id"]),
            deliveries=_of(tables["outbox"], "run_id", row["id"]),
            audit=_of(audit, "subject", row["id"]),
            spans=tuple(span for span in tables["spans"] if span["body"]["attributes"].get("loom.run.id") == row["id"]),
        )
        for row in tables["workflow_runs"]
    )


def _of(rows: tuple[Row, ...], name: str, value: str) -> tuple[Row, ...]:
    return tuple(row for row in rows if row[name] == value)
