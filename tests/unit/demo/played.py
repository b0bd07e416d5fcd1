"""Runs of workflows played with the engine and the demo model, in one thread and without a database of runs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.chat import ChatMessage, Reply, Request, ToolOutcome
from loom_worker.core.values.runs import Run, RunStage
from loom_worker.core.values.workflows import Pattern, Workflow
from loom_worker.demo.scripted import Scripted
from loom_worker.demo.workflows import shipped_workflows
from loom_worker.patterns.render import for_message
from loom_worker.workflows.decide import BeginStages, EndRun, decide
from loom_worker.workflows.load import load
from loom_worker.workflows.spec import pattern_from
from loom_worker.workflows.steps import Question
from tests.support.demo_model import KINDS, TOOLS, call
from tests.support.shipped_patterns import shipped_matcher

MOST_TIMES = 40
MODEL = Scripted(count=len)


def shipped() -> Mapping[str, Workflow]:
    """The workflows that ship with the shop; none has a fault."""
    found = load(shipped_workflows())
    assert found.problems == ()
    return found.workflows


class Played:
    """A run of one pattern, played to its end, with what was said in it by its stages' keys."""

    def __init__(
        self,
        pattern: Pattern,
        shop: sqlite3.Connection,
        today: date,
        values: Mapping[str, str] | None = None,
        *,
        said: Mapping[str, str] | None = None,
    ) -> None:
        """``said`` holds answers by their stages' keys, which are given instead of the demo model's."""
        self.prompts: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        self._shop, self._today, self._said = shop, today, said or {}
        self._conversations: dict[str, list[ChatMessage]] = {}
        self.end = self._end(pattern, values or {})

    def _end(self, pattern: Pattern, values: Mapping[str, str]) -> EndRun:
        run = Run("run_1", "default", "w", pattern.type, "in_progress", 0)
        for _ in range(MOST_TIMES):
            decision = decide(pattern, values, run, now_ms=0)
            if isinstance(decision, EndRun):
                return decision
            assert isinstance(decision, BeginStages), decision
            run = replace(run, stages=(*run.stages, *map(self._answered, decision.asks)))
        raise AssertionError("the run never came to its end")

    def _answered(self, ask: Question) -> RunStage:
        self.prompts[ask.key] = ask.prompt
        known = self._conversations.setdefault(ask.conversation_key, [])
        known.append(ChatMessage("user", ask.prompt, context=self._context(ask.prompt)))
        text = self._said[ask.key] if ask.key in self._said else self._replied(known)
        self.outputs[ask.key] = text
        return RunStage(ask.key, ask.role, ask.agent_id, "completed", output_text=text, completed_ms=0)

    def _context(self, prompt: str) -> str:
        found = [for_message(each) for each in shipped_matcher().match(prompt, k=1, kinds=KINDS)]
        return "\n\n".join([*found, f"Today is {self._today}."])

    def _replied(self, messages: list[ChatMessage]) -> str:
        """The last reply's text of a turn."""
        for _ in range(6):
            *_, reply = MODEL.reply(Request("", tuple(messages), tools=TOOLS, max_tokens=100_000))
            assert isinstance(reply, Reply)
            messages.append(ChatMessage("assistant", reply.text, tool_uses=reply.tool_uses))
            if not reply.tool_uses:
                return reply.text
            outcomes = (
                ToolOutcome(use.id, use.name, call(self._shop, use.name, use.arguments)) for use in reply.tool_uses
            )
            messages.append(ChatMessage("tool", outcomes=tuple(outcomes)))
        raise AssertionError("the script never came to an answer")


Play = Callable[..., Played]


def played(workflow: str, shop: sqlite3.Connection, today: date, **variables: str) -> Played:
    """A run of a shipped workflow."""
    found = shipped()[workflow]
    return Played(found.pattern, shop, today, {**found.variables, **variables})


def of_spec(spec: Mapping[str, Any], shop: sqlite3.Connection, today: date, **said: str) -> Played:
    """A run of a spec; ``said`` as of Played, with ``__`` for the dots of the keys."""
    answers = {key.replace("__", "."): text for key, text in said.items()}
    return Played(pattern_from(json.loads(json.dumps(spec))), shop, today, said=answers)
