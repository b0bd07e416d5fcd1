"""I9 and I15: what was spent is booked once, to the token and the billionth of a USD, and no budget is exceeded."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from loom_worker.core.values.turns import PAID
from tests.chaos.excuses import Excuses, cancelled_turns
from tests.chaos.facts import Facts, Row, TurnFact, grouped
from tests.chaos.records import Evidence, ModelCall
from tests.chaos.spent import Limit, Spent, is_in, limits, of_entry, of_usage, price_of, tokens, total
from tests.chaos.verdict import Violation


def check_ledger(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I9: replies, verdicts, turns, ledger and sessions say the same of what was spent.

    A turn has used what its journaled replies, its broken calls and its verdicts cost. The ledger has the replies of
    each model once, and the verdicts of each model once; a verdict that came after its turn's end stands in the ledger
    alone, and the model server has given it. A session has used what the ledger has of its turns and its summaries.
    Replies cost what the model server says, but where a cancel cut them. Every reply and verdict is booked under the
    name of the model that gave it, at the list price of that very model: who stood in for whom, the server knows. A
    completed turn names the model of its last reply.
    """
    asked = grouped(evidence.judge_calls, lambda call: call.mark)
    replied = {(call.mark, call.nth): call.tokens for call in evidence.turn_calls}
    answered, cancelled = _answered(evidence), cancelled_turns(evidence, facts)
    for turn in facts.turns:
        flaws = [*_entries(turn), *_late(turn, asked.get(turn.mark, ())), *_priced(turn, answered)]
        if turn.id not in cancelled:
            flaws += _told(turn, sum(replied.get(name, 0) for name in turn.kept))
        yield from (_i9(f"{turn.name}: {flaw}") for flaw in flaws)
    for session in facts.sessions:
        entries = [row for turn in facts.by_lane.get(session["lane"], ()) for row in turn.usage]
        entries += facts.memory_charges.get((session["workspace"], session["id"]), ())
        if of_usage(session["usage"]) != (spent := total(map(of_entry, entries))):
            yield _i9(f"session {session['id']} was charged {session['usage']}, its turns and summaries used {spent}")


def _entries(turn: TurnFact) -> Iterator[str]:
    steps = (step["payload"] for step in turn.steps if step["kind"] in PAID)
    replies = _by_model((paid["model"], of_usage(paid["usage"])) for paid in steps)
    verdicts = _by_model((row["model"], of_usage(row["usage"])) for row in turn.verdicts)
    used, spent = of_usage(turn.row["usage"]), total((*replies.values(), *verdicts.values()))
    if used != spent:
        yield f"used {used}, its replies and verdicts cost {spent}"
    for kind, costs in (("turn", replies), ("judge", verdicts)):
        rows = [row for row in turn.usage if row["kind"] == kind]
        first = rows[: len(costs)] if kind == "judge" else rows  # what is behind them came late
        entered = [(row["model"], of_entry(row)) for row in first]
        if sorted(model for model, _ in entered) != sorted(costs) or dict(entered) != costs:
            yield f"used {costs} for kind {kind}, the ledger has {entered}"


def _answered(evidence: Evidence) -> Mapping[tuple[str, int, str], frozenset[str]]:
    """The models that gave a turn's reply, or a judge's verdict on it."""
    whole = [call for call in evidence.model_calls if call.is_complete and call.part is None]
    named = grouped(whole, lambda call: call.look.key if call.look else (call.mark, call.nth, ""))
    return {key: frozenset(call.body["model"] for call in calls) for key, calls in named.items()}


def _priced(turn: TurnFact, answered: Mapping[tuple[str, int, str], frozenset[str]]) -> Iterator[str]:
    booked = [(step["n"], "", step["payload"]) for step in turn.steps if step["kind"] == "reply"]
    booked += [(row["reply_n"], row["name"], row) for row in turn.verdicts if row["model"]]
    for reply_n, judge, paid in booked:
        name, model, spent = f"reply {reply_n} {judge}".strip(), paid["model"], of_usage(paid["usage"])
        models = answered.get((turn.mark, turn.nth_of(reply_n), judge), frozenset())
        if models and tokens(spent) and model not in models:
            yield f"{name} is booked as {model}'s, {', '.join(sorted(models))} gave it"
        if (nano_usd := price_of(model, spent)) != spent["nano_usd"]:
            yield f"{name} is booked at {spent['nano_usd']} billionths of a USD, {model} asks {nano_usd}"
    if turn.status == "completed" and turn.replies and turn.row["model"] != turn.replies[-1]["model"]:
        yield f"names {turn.row['model']}, {turn.replies[-1]['model']} gave its last reply"


def _late(turn: TurnFact, asked: Sequence[ModelCall]) -> Iterator[str]:
    charged = sum(row["llm_calls"] for row in turn.usage if row["kind"] == "judge")
    given = sum(call.is_complete for call in asked)
    if charged > given:
        yield f"was charged {charged} verdicts, the model server has given {given}"


def _told(turn: TurnFact, delivered: int) -> Iterator[str]:
    charged = tokens(total(of_usage(reply["usage"]) for reply in turn.replies))
    if charged != delivered:
        yield f"its replies cost {charged} tokens, the model server says {delivered}"


def _by_model(costs: Iterator[tuple[str | None, Spent]]) -> dict[str, Spent]:
    found: dict[str, Spent] = {}
    for model, spent in costs:
        if spent["llm_calls"]:
            found[model or ""] = total((found.get(model or "", Counter()), spent))
    return found


def check_budgets(evidence: Evidence, facts: Facts) -> Iterator[Violation]:
    """I15: no budget is exceeded, and none keeps what was not spent.

    Of each budget that a turn, a session, a run or an agent has: neither what the ledger has, nor what the model server
    has delivered while nothing was done to the system is more than the limit; and what counts as spent is no less than
    what the ledger has. It is no more either where every request was answered whole and booked, or refused, and nothing
    was done to the system meanwhile. A turn ends for want of a budget only if it has one.
    """
    excuses, books = Excuses(evidence), Books(evidence, facts)
    known = cancelled_turns(evidence, facts) & facts.by_id.keys()
    cancelled = {facts.by_id[turn_id].row["lane"] for turn_id in known}
    for limit in books.limits:
        entries, calls = books.entries(limit), books.calls(limit)
        booked = total(map(of_entry, entries))
        delivered = sum(call.tokens for call in calls if call.is_complete)
        if over := limit.exceeded(booked):
            yield _i15(f"{limit.name}: {over} are booked")
        if limit.tokens is not None and delivered > limit.tokens and excuses.is_calm(calls):
            yield _i15(f"{limit.name}: the model server has delivered {delivered} of {limit.tokens} tokens")
        if limit.level in ("turn", "run"):
            continue  # its account is closed with it
        counted = _counted(facts.spending.get((limit.level, limit.key, limit.window)))
        if any(counted[name] < figure for name, figure in _figures(booked).items()):
            yield _i15(f"{limit.name}: {counted} count as spent, {_figures(booked)} are booked")
        is_calm = limit.level == "session" and limit.key not in cancelled and _is_calm(calls, booked, excuses)
        if is_calm and any(counted[name] > figure for name, figure in _figures(booked).items()):
            yield _i15(f"{limit.name}: {counted} count as spent, {_figures(booked)} are booked, and no call was lost")
    for turn in facts.turns:
        if turn.row["reason"] == "budget" and not books.limit(turn):
            yield _i15(f"{turn.name}: ended for want of a budget, and none limits it")


@dataclass(frozen=True)
class Books:
    """What was spent on which account."""

    evidence: Evidence
    facts: Facts

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """All there are; of days and months those in which all was spent."""
        facts = self.facts
        found = [limit for turn in facts.turns for limit in limits("turn", turn.id, turn.row["budget"])]
        found += [limit for row in facts.sessions for limit in limits("session", row["lane"], row["budget"])]
        found += [limit for run in facts.runs for limit in limits("run", run.id, run.row["budget"])]
        for agent, budget in self.evidence.agent_budgets.items():
            windows = [window for level, key, window in facts.spending if (level, key) == ("agent", agent)]
            for limit in limits("agent", agent, budget, windows):
                if all(is_in(limit.window, row["at_ms"]) for row in self._all_entries if row["agent"] == agent):
                    found.append(limit)
        return tuple(found)

    def limit(self, turn: TurnFact) -> bool:
        """True if a turn is on a budget."""
        owners = {("turn", turn.id), ("session", turn.row["lane"]), ("agent", turn.row["agent"])}
        owners.add(("run", turn.row["run_id"]))
        return any((limit.level, limit.key) in owners for limit in self.limits)

    def entries(self, limit: Limit) -> Sequence[Row]:
        """Of the ledger."""
        if limit.level == "run":
            return [row for turn in self.facts.turns_by_run.get(limit.key, ()) for row in turn.usage]
        name = {"turn": "turn_id", "session": "session_id", "agent": "agent"}[limit.level]
        key = self._session_ids[limit.key] if limit.level == "session" else limit.key
        return [row for row in self._all_entries if row[name] == key]

    def calls(self, limit: Limit) -> Sequence[ModelCall]:
        """Requests that somebody on the budget made, as far as that is known."""
        name = {"turn": "id", "session": "lane", "agent": "agent", "run": "run_id"}[limit.level]
        return [
            call
            for call, turn in self._calls
            if turn.row[name] == limit.key and (limit.level != "turn" or call.part is None)
        ]

    @cached_property
    def _calls(self) -> Sequence[tuple[ModelCall, TurnFact]]:
        found = []
        for call in self.evidence.model_calls:
            marks = (call.mark,) if call.part is None else call.part.marks
            turn = next((turn for mark in marks for turn in self.facts.by_mark.get(mark, ())), None)
            if turn is not None:
                found.append((call, turn))
        return found

    @cached_property
    def _session_ids(self) -> Mapping[str, str]:
        return {row["lane"]: row["id"] for row in self.facts.sessions}

    @cached_property
    def _all_entries(self) -> Sequence[Row]:
        of_turns = [row for turn in self.facts.turns for row in turn.usage]
        return [*of_turns, *(row for rows in self.facts.memory_charges.values() for row in rows)]


def _figures(spent: Spent) -> dict[str, int]:
    return {"nano_usd": spent["nano_usd"], "tokens": tokens(spent)}


def _counted(row: Row | None) -> dict[str, int]:
    return {name: 0 if row is None else int(row[name]) for name in ("nano_usd", "tokens")}


def _is_calm(calls: Sequence[ModelCall], booked: Spent, excuses: Excuses) -> bool:
    """True if every request is booked or was refused, and nothing was done while there were some."""
    whole = [call for call in calls if call.is_complete]
    is_clear = len(whole) == booked["llm_calls"] and all(call.is_complete or call.status >= 400 for call in calls)
    return is_clear and excuses.is_calm(calls)


def _i9(text: str) -> Violation:
    return Violation("I9", text)


def _i15(text: str) -> Violation:
    return Violation("I15", text)
