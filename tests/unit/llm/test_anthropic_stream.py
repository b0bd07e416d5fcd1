"""Reading a reply out of events."""

import json
import math

import pytest

from loom_worker.core.errors import StreamBroken
from loom_worker.core.values.chat import ChatMessage, Request, TextDelta
from loom_worker.llm.anthropic_request import POSITION_KEY, request_body
from loom_worker.llm.anthropic_stream import MessageAssembly
from loom_worker.llm.assembly import ErrorEvent, read_tool_use
from loom_worker.llm.sse import json_object
from tests.support.messages_wire import (
    WireCall,
    answer,
    block,
    call_block,
    error_event,
    finish,
    start,
    text_block,
    thinking_block,
)


def assembled(events):
    assembly = MessageAssembly("claude-asked")
    return assembly, "".join(delta.text for event in events for delta in said(assembly, event))


def said(assembly, event):
    return [delta for delta in assembly.feed(event) if isinstance(delta, TextDelta)]


def read(*parts):
    events = [event for part in parts for event in (part if isinstance(part, list) else [part])]
    assembly, text = assembled(events)
    reply = assembly.reply()
    assert reply.text == text
    return reply


def called(raw, stop_reason="tool_use"):
    (use,) = read(start(), call_block(0, WireCall("c1", "find", raw)), finish(stop_reason)).tool_uses
    return use


def test_text_comes_piece_by_piece_and_whole():
    assembly, _ = assembled([start(model="/models/served.gguf")])
    events = [*text_block(0, ["Hel", "lo"]), *finish("end_turn")]
    assert [delta.text for event in events for delta in said(assembly, event)] == ["Hel", "lo"]
    assert (assembly.reply().text, assembly.reply().model) == ("Hello", "claude-asked")


def test_text_in_the_opening_of_a_block_counts():
    assert read(start(), block(0, {"type": "text", "text": "Hi"}, []), finish("end_turn")).text == "Hi"


def test_usage_takes_the_later_figures_and_keeps_those_left_out():
    first = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
    last = {"output_tokens": 20, "input_tokens": None, "cache_read_input_tokens": 6}
    usage = read(start(usage=first), text_block(0, ["x"]), finish("end_turn", usage=last)).usage
    figures = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    assert figures == (10, 20, 6, 3)
    assert (usage.llm_calls, usage.cost_usd) == (1, None)


@pytest.mark.cases(
    ("given", "has_calls", "expected"),
    [
        ("end_turn", False, "end_turn"),
        ("tool_use", True, "tool_use"),
        ("max_tokens", False, "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("model_context_window_exceeded", False, "max_tokens"),
        ("stop_sequence", False, "stop_sequence"),
        ("refusal", False, "refusal"),
        ("pause_turn", False, "pause_turn"),
        ("length", False, "max_tokens"),
        ("MAX_TOKENS", False, "max_tokens"),
        ("content_filter", False, "refusal"),
        ("something_new", False, "end_turn"),
        ("something_new", True, "tool_use"),
        ("end_turn", True, "tool_use"),
        ("tool_use", False, "end_turn"),
    ],
)
def test_the_stop_reason_is_one_that_loom_knows(given, has_calls, expected):
    calls = [WireCall("c1", "find", {"a": 1})] if has_calls else []
    assert read(answer("text", calls, stop_reason=given)).stop_reason == expected


def test_parallel_calls_keep_their_order_and_arguments():
    calls = [WireCall("c1", "find", {"q": "é"}), WireCall("c2", "count", {}), WireCall("c3", "find", {"n": [1, {}]})]
    uses = read(answer("", calls)).tool_uses
    assert [(use.id, use.name, use.arguments, use.flaw) for use in uses] == [
        (call.id, call.name, call.arguments, None) for call in calls
    ]


def test_a_call_that_streams_only_an_empty_piece_has_no_arguments():
    use = called("")
    assert (use.arguments, use.flaw) == ({}, None)


BAD = ["[1]", "7", '{"q": NaN}', '{"q": -Infinity}', '{"q": 1e999}', '{"q": [{"n": -1E400}]}', '{"q": "\\ud800"}']
BAD += ['{"q": ' + "9" * 5_000 + "}", '{"q":' * 500 + "1" + "}" * 500]


@pytest.mark.cases("raw", [*BAD, '{"q": "a', "{", "null", "[" * 90_000])
def test_arguments_that_cannot_be_read_are_a_flaw(raw):
    use = called(raw)
    assert use.flaw
    assert use.arguments == {}


@pytest.mark.parametrize("raw", ["", '{"q": "a', '{"q'])
def test_a_call_cut_by_the_token_limit_is_a_flaw_and_not_empty_arguments(raw):
    assert "cut off" in called(raw, stop_reason="max_tokens").flaw


def test_a_call_that_was_complete_before_the_token_limit_is_whole():
    events = [call_block(0, WireCall("c1", "find", "")), text_block(1, ["and th"])]
    (use,) = read(start(), *events, finish("max_tokens")).tool_uses
    assert use.flaw is None


def test_a_call_whose_block_was_never_ended_is_a_flaw():
    events = call_block(0, WireCall("c1", "find", ""))[:-1]
    assert read(start(), events, finish("tool_use")).tool_uses[0].flaw


def test_arguments_given_in_the_opening_are_taken():
    opening = {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": 1}}
    assert read_tool_use(opening, "", was_cut=False).arguments == {"q": 1}


@pytest.mark.cases("raw", BAD)
def test_arguments_given_in_the_opening_are_looked_at_as_those_that_stream(raw):
    opening = b'{"type": "tool_use", "id": "c1", "name": "find", "input": ' + raw.encode() + b"}"
    use = read_tool_use(json_object(opening), "", was_cut=False)
    assert use.flaw
    assert use.arguments == {}


@pytest.mark.cases(
    "raw",
    ['{"q": 1.7976931348623157e308}', '{"q": 1e-999}', '{"q": ' + "9" * 4_000 + "}", json.dumps({"q": "[{" * 200})],
)
def test_arguments_at_the_edge_of_what_json_is_are_no_flaw(raw):
    use = called(raw)
    assert (use.arguments, use.flaw) == (json.loads(raw), None)


def test_the_flaw_of_a_number_tells_the_model_what_is_wrong():
    assert "Out of range" in called('{"q": 1e999}').flaw


@pytest.mark.cases("part", [7, ["c1"], {}])
@pytest.mark.cases("name", ["id", "name"])
def test_a_call_whose_id_or_name_is_no_text_breaks_the_stream(name, part):
    opening = {"type": "tool_use", "id": "c1", "name": "find", "input": {}} | {name: part}
    with pytest.raises(StreamBroken):
        read(start(), block(0, opening, []), finish("tool_use"))


def test_a_call_is_named_in_text_that_can_be_stored():
    opening = {"type": "tool_use", "id": "c\ud800", "name": "fi\0nd", "input": {}}
    (use,) = read(start(), block(0, opening, []), finish("tool_use")).tool_uses
    assert (use.id, use.name) == ("c\ufffd", "fi_nd")


@pytest.mark.cases("last", [0, 0.0, math.inf, -math.inf, math.nan, 10**30, -5, "7", None, [1], True, 43, 43.0, 778.0])
@pytest.mark.cases("first", [777, 777.0])
def test_a_figure_of_usage_is_final_unless_it_is_nothing_or_nonsense(first, last):
    figures = [{"input_tokens": figure, "output_tokens": figure} for figure in (first, last)]
    usage = read(start(usage=figures[0]), text_block(0, ["x"]), finish("end_turn", usage=figures[1])).usage
    assert usage.input_tokens == usage.output_tokens == (last if last in (43, 778) else 777)
    assert type(usage.output_tokens) is int


@pytest.mark.parametrize("flaw", ["\ud800", math.inf])
def test_thinking_that_could_not_go_back_is_left_out(flaw):
    thought = block(0, {"type": "redacted_thinking", "data": flaw}, [])
    assert read(start(), thought, text_block(1, ["x"]), finish("end_turn")).opaque == ()


def test_thinking_is_kept_with_its_signature_and_goes_back_as_it_came():
    redacted = block(2, {"type": "redacted_thinking", "data": "opaque"}, [])
    events = [thinking_block(0, "hm", "sig"), text_block(1, ["a"]), redacted, call_block(3, WireCall("c1", "find", ""))]
    reply = read(start(), *events, finish("tool_use"))
    message = ChatMessage("assistant", reply.text, tool_uses=reply.tool_uses, opaque=reply.opaque)
    request = Request("", (ChatMessage("user", "x"), message), cache_marks=False)
    sent = request_body(request, "claude-asked")["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "a"},
        {"type": "redacted_thinking", "data": "opaque"},
        {"type": "tool_use", "id": "c1", "name": "find", "input": {}},
    ]
    assert [each[POSITION_KEY]["model"] for each in reply.opaque] == ["claude-asked"] * 2


def test_unknown_events_blocks_and_deltas_are_passed_over():
    unknown = block(0, {"type": "server_tool_use", "id": "s"}, [{"type": "novel_delta", "x": 1}])
    cited = block(1, {"type": "text", "text": ""}, [{"type": "citations_delta"}, {"type": "text_delta", "text": "ok"}])
    assert read(start(), {"type": "novelty"}, {}, unknown, cited, finish("end_turn")).text == "ok"


@pytest.mark.cases("kept", range(len(answer("one two", [WireCall("c", "find", {"a": 1})]))))
def test_a_stream_that_lacks_its_end_is_never_a_reply(kept):
    assembly, _ = assembled(answer("one two", [WireCall("c", "find", {"a": 1})])[:kept])
    with pytest.raises(StreamBroken):
        assembly.reply()


def test_a_stream_without_a_stop_reason_is_never_a_reply():
    with pytest.raises(StreamBroken):
        read(start(), text_block(0, ["x"]), finish(None))


@pytest.mark.cases(
    "event",
    [
        {"type": "message_start"},
        {"type": "message_start", "message": []},
        {"type": "message_start", "message": {"usage": 7}},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "index": 0, "content_block": {}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}},
        {"type": "message_delta", "delta": 7},
    ],
)
def test_an_event_of_another_shape_breaks_the_stream(event):
    with pytest.raises(StreamBroken):
        assembled([start(), *text_block(0, ["x"]), event])


@pytest.mark.cases(
    ("given", "stored"),
    [
        ("functions.list_tables<|channel|>", "list_tables"),
        ("default_api:find", "find"),
        ("", "unnamed_tool"),
        ("größe messen", "gr__e_messen"),
        ("f" * 276, "f" * 128),
        ("find", "find"),
    ],
)
def test_a_name_that_the_model_made_up_is_stored_as_it_can_be_sent(given, stored):
    assert read(start(), call_block(0, WireCall("c1", given)), finish("tool_use")).tool_uses[0].name == stored


@pytest.mark.cases("missing", [{}, {"id": None, "name": None}])
def test_a_call_without_id_or_name_is_a_call(missing):
    opening = {"type": "tool_use", "input": {}, **missing}
    (use,) = read(start(), block(0, opening, []), finish("tool_use")).tool_uses
    assert (use.id, use.name) == ("", "unnamed_tool")


def test_a_block_index_that_comes_twice_loses_no_text():
    assert (
        read(start(), text_block(0, ["first. "]), text_block(0, ["second."]), finish("end_turn")).text
        == "first. second."
    )


def test_calls_under_one_index_are_all_kept():
    calls = [call_block(0, WireCall(f"c{n}", "find", {"n": n})) for n in range(2)]
    assert [use.arguments for use in read(start(), *calls, finish("tool_use")).tool_uses] == [{"n": 0}, {"n": 1}]


def test_text_whose_block_was_never_started_counts():
    assert read(start(), text_block(0, ["a", "b"])[1:], finish("end_turn")).text == "ab"


def test_what_a_server_leaves_null_is_nothing():
    null = [{"type": "text_delta", "text": None}, {"type": "text_delta", "text": "a"}]
    blocks = [thinking_block(0, "hm", None), block(1, {"type": "text", "text": None}, null)]
    last = {"type": "message_delta", "delta": None, "usage": {"output_tokens": 5}}
    reply = read(start(), *blocks, finish("end_turn")[0], last, {"type": "message_stop"})
    assert (reply.text, reply.usage.output_tokens) == ("a", 5)


def test_a_message_that_comes_whole_is_a_reply():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "whole"},
        {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": "x"}},
    ]
    usage = {"input_tokens": 3, "output_tokens": 1}
    reply = read({"type": "message", "model": "m", "content": content, "stop_reason": "tool_use", "usage": usage})
    assert (reply.text, reply.stop_reason, reply.usage.input_tokens) == ("whole", "tool_use", 3)
    assert (reply.tool_uses[0].arguments, reply.opaque[0]["signature"]) == ({"q": "x"}, "sig")


@pytest.mark.cases(
    "event",
    [{"error": "no"}, {"type": "error", "error": None}, {"object": "error", "message": "no", "type": "NotFound"}],
)
def test_an_error_is_one_in_any_form(event):
    with pytest.raises(ErrorEvent):
        read(start(), event)


def test_an_error_event_carries_its_kind():
    with pytest.raises(ErrorEvent, match="overloaded_error"):
        assembled([start(), error_event("overloaded_error")])


def test_lone_surrogates_and_nul_are_replaced_in_deltas_and_text_alike():
    assert read(start(), text_block(0, ["a\ud800", "\0b"]), finish("end_turn")).text == "a��b"
