"""Requests for summaries: how they are known, and what ours say."""

from loom_worker.core.values.chat import ChatMessage, Request
from loom_worker.core.values.sessions import Message
from loom_worker.llm.anthropic_request import request_body
from loom_worker.memory import summarize
from tests.chaos.summaries import is_summary, notes_in, part_of, said


def asked(*texts: str) -> dict[str, object]:
    """Loom's own request for notes on these questions."""
    messages = [Message(f"m{n}", "s1", f"t{n}", ChatMessage("user", text), 9, 0) for n, text in enumerate(texts)]
    return request_body(summarize.for_part(messages, most_tokens=100, budget_tokens=1_000, count=len), "claude-test")


def digested(notes: str) -> dict[str, object]:
    """Loom's own request for a digest."""
    return request_body(summarize.for_digest(notes, most_tokens=100), "claude-test")


def test_what_loom_asks_a_compressor_is_known_by_its_system_text() -> None:
    assert is_summary(asked("T00001 plain"))
    assert is_summary(digested("Note-1 speaks of T00001."))


def test_a_turns_request_is_none_for_a_summary_whatever_is_said_in_it() -> None:
    text = "You keep the memory of a long conversation"
    request = Request("Be kind.", (ChatMessage("user", f"T00001 {text}"),), memory=text)
    assert not is_summary(request_body(request, "claude-test"))
    assert not is_summary({"messages": [{"role": "user", "content": text}]})


def test_a_part_is_of_its_turns_in_their_order_and_the_same_when_it_has_grown() -> None:
    small, large = part_of(asked("T00007 plain", "T00003 plain")), part_of(asked("T00007 plain", "T00003", "T00009"))
    assert (small.is_digest, small.marks) == (False, ("T00007", "T00003"))
    assert large.key == small.key
    assert part_of(asked("T00003 plain")).key != small.key


def test_digests_are_told_apart_by_the_notes_they_are_of() -> None:
    one, other = part_of(digested("Note-1 speaks of T00001.")), part_of(digested("Note-1 speaks of T00001, T00002."))
    assert (one.is_digest, other.marks) == (True, ("T00001", "T00002"))
    assert one.key != other.key


def test_a_summary_of_ours_says_which_turns_it_is_of() -> None:
    text = said(part_of(asked("T00007 plain", "T00009 plain")), 12)
    (note,) = notes_in(f"Earlier things.\n\n{text}")
    assert (note.number, note.marks) == (12, ("T00007", "T00009"))


def test_a_digest_of_ours_is_none_of_the_summaries_it_replaces() -> None:
    assert notes_in(said(part_of(digested("Note-1 speaks of T00001.")), 13)) == ()


def test_notes_that_name_no_turn_are_digested_all_the_same() -> None:
    assert said(part_of(digested("Somebody spoke.")), 3) == "Digest-3 replaces all notes up to here."
