"""What the model says to a question: read from the question itself. Pure."""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.chaos.marks import RUN_ID, child_mark, mark_of, reply_name, unspoken
from tests.chaos.panels import TOOL, Look, critique, is_correction, score_of
from tests.chaos.summaries import part_of, said
from tests.support.messages_rules import blocks
from tests.support.messages_wire import WireCall, answer

Json = dict[str, Any]

ASKS = "asks for tools, round"
"""Stands in every reply that follows a ``tools=`` directive, so that the next one is known."""
LEFT_OUT = "and their results are left out for want of room.]"
"""Stands beside a question whose turn has grown too large for the window."""
DEFAULT_WORDS = 8
FILLER = ("thread", "over", "warp", "under", "weft", "and", "back", "again")
DIRECTIVE = re.compile(r"(?:([a-z]+):)?([a-z]+)(?:=(\S+))?")
"""A word of a question that says what the model does; with a name before it, only the agent of that name."""
BELOW = ">"
"""Before a directive: it is for the agents that are asked, one level down."""
REF = re.compile(r"\bref_[0-9a-f]{32}\b")
SELF = re.compile(r"^You are @([\w.:-]*\w)\.$", re.MULTILINE)
"""How an agent that workflows ask is told its name."""
PASS = re.compile(r"\bpass-(\d+)\b")
"""Stands in the reason for which a workflow's work is done again: how often it was."""
CALL_TOKENS = 20
"""Of a reply, for each call in it."""
TOOL_TOKENS = 470
"""What the provider adds to a request with tools, as the newest models do."""


@dataclass(frozen=True)
class Script:
    """A question's directives; model_server.py says what each means."""

    mark: str = ""
    words: int = DEFAULT_WORDS
    rounds: tuple[tuple[str, ...], ...] = ()
    """Of tool calls."""
    slow_s: float = 0.0
    wait_s: float = 0.0
    faults: tuple[str, ...] = ()
    """Of the first requests, one each."""
    judged: tuple[str, ...] = ()
    """What judges say of the first answers, one each."""
    first: str = ""
    """The answer begins with it, even before its own name."""
    ends: tuple[str, ...] = ()
    """Its last lines."""
    bare: str = ""
    """All that it says, so that answers of several agents may be equal."""
    below: str = ""
    """Directives for the agents that it asks."""
    passes: bool = False
    """What it tells other agents names the large results of this turn."""

    def fault(self, nth: int, *, seed: int, rate: float, among: Sequence[str]) -> str:
        """The fault of the n-th request of this mark, "" for none; chance depends on (seed, mark, n) alone."""
        if nth <= len(self.faults):
            return self.faults[nth - 1]
        chance = chance_of(seed, self.mark, nth)
        return chance.choice(list(among)) if among and chance.random() < rate else ""


@dataclass(frozen=True)
class SaidReply:
    """A whole reply, and the events it streams as."""

    text: str
    """Of a judge's reply its score, if it gave one."""
    events: list[Json]
    tokens: int
    """What it costs, in and out."""


def chance_of(seed: int, mark: str, nth: int) -> random.Random:
    """The dice of one request."""
    return random.Random(f"{seed}:{mark}:{nth}")


def newest_question(body: Json) -> str:
    """The last text of the user: what stands beside a question comes before it in the same message."""
    return next((text for _, text in _user_texts(body)), "")


def stage_of(body: Json) -> int:
    """How many replies of the running turn the request holds: equal stages of a turn ask for the same reply."""
    place = next((place for place, _ in _user_texts(body)), 0)
    return sum(message["role"] == "assistant" for message in body["messages"][place + 1 :])


def is_folded(body: Json) -> bool:
    """True if the request leaves out the running turn's first replies: how many it holds then says nothing."""
    place = next((place for place, _ in _user_texts(body)), 0)
    return any(LEFT_OUT in text for at, text in _user_texts(body) if at == place)


def agent_of(body: Json) -> str:
    """Which agent is asked; "" for one that was not told its name."""
    found = SELF.search("\n".join(block["text"] for block in blocks(body.get("system", []))))
    return found[1] if found else ""


def script_of(question: str, agent: str = "") -> Script:
    """Read a question's directives; a word that is none is left out, as is one for another agent.

    Those of a run's stage are the words behind the first run id, up to the end of the line: what follows are outputs.
    """
    mark = mark_of(question, agent)
    run_id = RUN_ID.search(question) if agent else None
    told = question.partition(run_id[0] if run_id else mark)[2] if mark else ""
    told, _, rest = told.partition("\n") if run_id else (told, "", "")
    found = (DIRECTIVE.fullmatch(word) for word in told.split())
    own = agent.rpartition(":")[2]
    pairs = [(each[2], each[3] or "") for each in found if each and each[1] in (None, own)]
    last = dict(pairs)
    return Script(
        mark=mark,
        words=int(last.get("words") or DEFAULT_WORDS),
        rounds=tuple(tuple(value.split(",")) for name, value in pairs if name == "tools" and value),
        slow_s=float(last.get("slow") or 0.0),
        wait_s=float(last.get("wait") or 0.0),
        faults=tuple(_faults(pairs)),
        judged=tuple(filter(None, last.get("judged", "").split(","))),
        first=_verdict_on(rest, last["yesif"]) if "yesif" in last else last.get("first", ""),
        ends=(*_lines(last.get("ends", "")), *_wish(last.get("again", ""), rest, mark)),
        bare=last.get("bare", ""),
        below=" ".join(word[1:] for word in told.split() if word.startswith(BELOW)),
        passes="passes" in last,
    )


def _verdict_on(text: str, word: str) -> str:
    return "yes" if word in text else "no"


def _lines(value: str) -> Iterator[str]:
    """The lines that a directive names: it has ``|`` for a new line and ``_`` for a blank."""
    yield from (line.replace("_", " ") for line in value.split("|") if line)


def _wish(value: str, rest: str, mark: str) -> Iterator[str]:
    """The line that asks for another iteration, for as long as there were fewer than the directive says."""
    stage, _, times = value.partition("*")
    done = max((int(number) for number in PASS.findall(rest)), default=0)
    if stage and done < int(times or 1):
        yield f"RESTART {stage}: pass-{done + 1} after {mark}"


def reply_for(script: Script, nth: int, body: Json, *, fault: str = "") -> SaidReply:
    """What is said to the n-th request of a mark."""
    name = reply_name(script.mark, nth)
    calls = _calls_of_fault(fault, name)
    text = f"{name} errs." if calls else ""
    if not calls and _may_call(body):
        rounds_before = _rounds_before(body)
        if rounds_before < len(script.rounds):
            below = " ".join((script.below, *(_refs_since_question(body) if script.passes else ())))
            calls = _calls(script.rounds[rounds_before], name, below)
            text = f"{name} {ASKS} {rounds_before + 1}."
    before = sum(map(is_correction, _texts_since_question(body)))
    anew = [f"anew-{before}"] if before else []
    words = [*([script.first] if script.first else []), name, "says:", *anew]
    words += [FILLER[n % len(FILLER)] for n in range(script.words)]
    whole = f"{script.bare} {unspoken(name)}" if script.bare else "\n".join([" ".join(words), *script.ends])
    return _said(text or whole, calls, body)


def summary_for(number: int, body: Json) -> SaidReply:
    """What is said to a request for a summary, the number-th of all requests."""
    return _said(said(part_of(body), number), [], body)


def verdict_for(look: Look, words: Sequence[str], number: int, body: Json, *, fault: str = "") -> SaidReply:
    """What a judge says, in answer to the number-th of all requests; ``text`` is its score, if it gives one."""
    score = score_of(look, words)
    if score is None:
        return _said(f"The {look.judge} judge has nothing to say.", [], body)
    verdict = {"score": score, "critique": critique(look, score)}
    if "output_config" in body:
        whole = json.dumps(verdict)
        reply = _said(whole[:12] if fault in ("bad_tool_json", "unknown_tool") else whole, [], body)
        return reply if reply.text != whole else replace(reply, text=str(score))
    call = WireCall(f"toolu_verdict_{number}", TOOL, verdict)
    broken = {
        "bad_tool_json": replace(call, arguments='{"score": 0.'),
        "unknown_tool": replace(call, name="no_such_tool"),
    }.get(fault)
    reply = _said("", [broken or call], body)
    return reply if broken else replace(reply, text=str(score))


def sent_tokens(body: Json) -> int:
    """What the provider takes a request for; fewer than Loom expects at most, as it must be."""
    return len(json.dumps(body)) // 5 + (TOOL_TOKENS if body.get("tools") else 0)


def _said(text: str, calls: Sequence[WireCall], body: Json) -> SaidReply:
    """A reply with what it costs, cut where it has more tokens than it may have."""
    most_tokens = int(body["max_tokens"])
    tokens = len(text) // 4 + CALL_TOKENS * len(calls)
    is_cut = tokens > most_tokens
    usage = {"input_tokens": sent_tokens(body), "output_tokens": min(tokens, most_tokens)}
    text, calls = (text[: 4 * most_tokens], []) if is_cut else (text, calls)
    events = answer(text, calls, stop_reason="max_tokens" if is_cut else None, model=body["model"], usage=usage)
    return SaidReply(text, events, sum(usage.values()))


def _faults(pairs: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in pairs:
        if name == "hang":
            yield "hang"
        elif name == "fault":
            fault, _, times = value.partition("*")
            yield from [fault] * int(times or 1)


def _may_call(body: Json) -> bool:
    return bool(body.get("tools")) and body.get("tool_choice", {}).get("type") != "none"


def _rounds_before(body: Json) -> int:
    return sum(ASKS in text for text in _texts_since_question(body))


def _user_texts(body: Json) -> Iterator[tuple[int, str]]:
    """The user's texts with their messages' places, the newest first."""
    users = [(place, message) for place, message in enumerate(body["messages"]) if message["role"] == "user"]
    for place, message in reversed(users):
        texts = [block["text"] for block in blocks(message["content"]) if block["type"] == "text"]
        yield from ((place, text) for text in reversed(texts) if not is_correction(text))


def _texts_since_question(body: Json) -> Iterator[str]:
    place = next((place for place, _ in _user_texts(body)), 0)
    for message in body["messages"][place + 1 :]:
        yield from (block["text"] for block in blocks(message["content"]) if block["type"] == "text")


def _refs_since_question(body: Json) -> Sequence[str]:
    place = next((place for place, _ in _user_texts(body)), 0)
    return tuple(dict.fromkeys(REF.findall(json.dumps(body["messages"][place + 1 :]))))


def _calls(tools: Sequence[str], name: str, below: str = "") -> list[WireCall]:
    return [_call(tool, name, place, below) for place, tool in enumerate(tools)]


def _call(tool: str, name: str, place: int, below: str = "") -> WireCall:
    mark, _, nth = name.partition(".")
    nonce = f"{mark}-{nth}-{place}"
    tool, _, seconds = tool.partition(":")
    tool, _, agent = tool.partition("@")
    if agent or tool == "receive_messages":
        return WireCall(f"toolu_{nonce}", tool, _told_agent(tool, agent, seconds, nonce, below))
    arguments: Json = {"nonce": nonce, **({"seconds": float(seconds)} if seconds else {})}
    return WireCall(f"toolu_{nonce}", tool, arguments)


def _told_agent(tool: str, agent: str, more: str, nonce: str, below: str) -> Json:
    """The arguments of a call that another agent answers; the turn that it asks for has a mark of its own."""
    question = f"{child_mark(nonce)} {below}".strip()
    match tool:
        case "ask_agent":
            return {"agent": agent, "message": question, **({"reply_timeout_s": float(more)} if more else {})}
        case "delegate":
            return {"agent": agent, "task": question}
        case "send_agent":
            text = " ".join((f"News {nonce}.", *REF.findall(below)))
            return {"agent": agent, "message": text, **({"kind": more} if more else {})}
    return {"wait_s": float(more)} if more else {}


def _calls_of_fault(fault: str, name: str) -> list[WireCall]:
    if fault == "bad_tool_json":
        broken = _call("note", name, 0)
        return [WireCall(broken.id, broken.name, '{"nonce": "' + name)]
    if fault == "unknown_tool":
        return _calls(["no_such_tool"], name)
    return _calls(["note"] * 50, name) if fault == "fifty_calls" else []
