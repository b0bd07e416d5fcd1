"""What is special about Ollama, without a server."""

import pytest

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome, ToolSpec, ToolUse
from loom_worker.llm.ollama import Ollama, OllamaServer, address
from tests.support.ollama_wire import as_read

TOOL = ToolSpec("find", "Finds.", {"type": "object"})
CONVERSATION = (
    ChatMessage("user", "Which one?", context="Today is Monday."),
    ChatMessage("assistant", "I look. Wait.", tool_uses=(ToolUse("c1", "find", {"q": "x"}),)),
    ChatMessage("tool", outcomes=(ToolOutcome("c1", "find", "seven"),)),
    ChatMessage("user", "And now?"),
)


def body_of(request):
    return OllamaServer(address(None)).body(request, "qwen3-coder")


@pytest.mark.cases(
    ("spelling", "url"),
    [
        (None, "http://127.0.0.1:11434"),
        ("", "http://127.0.0.1:11434"),
        ("  'gpu-box'  ", "http://gpu-box:11434"),
        ("gpu-box:8080", "http://gpu-box:8080"),
        ("10.1.2.3", "http://10.1.2.3:11434"),
        (":9000", "http://127.0.0.1:9000"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("[::]", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("http://gpu-box:11434/", "http://gpu-box:11434"),
        ("http://gpu-box", "http://gpu-box:80"),
        ("https://llm.example.com", "https://llm.example.com:443"),
        ("https://llm.example.com:8443//", "https://llm.example.com:8443"),
    ],
)
def test_every_usual_spelling_of_the_host_is_read_as_ollama_reads_it(spelling, url):
    assert address(spelling) == url


@pytest.mark.cases("spelling", ["gpu box", "box:port", "box:99999", "ftp://box", "http://box/path?q", "a:1:2"])
def test_what_is_no_address_is_a_bad_setting(spelling):
    with pytest.raises(BadSettings, match="OLLAMA_HOST"):
        Ollama(model="m", host=spelling)


def test_its_name_has_a_prefix_so_that_no_price_is_taken_for_it():
    assert Ollama(model="claude-3-5-sonnet").name == "ollama/claude-3-5-sonnet"


def test_texts_that_it_would_run_together_are_kept_apart():
    read = as_read(body_of(Request("You help.", CONVERSATION, memory="The user is Ann.")))
    assert read[0]["content"] == "You help."
    assert read[1]["content"] == "The user is Ann.\n\nToday is Monday.\n\nWhich one?"
    assert [each["content"] for each in read if each["role"] == "tool"] == ["seven"]
    assert read[-1]["content"] == "And now?"


def test_the_models_own_text_goes_back_as_it_came():
    place = {"model": "qwen3-coder", "text": len("I look."), "calls": 0}
    thought = {"type": "thinking", "thinking": "hm", "loom_place": place}
    spoken = ChatMessage("assistant", "I look. Wait.", opaque=(thought,))
    read = as_read(body_of(Request("", (CONVERSATION[0], spoken, CONVERSATION[3]))))
    assert (read[1]["content"], read[1]["thinking"]) == ("I look. Wait.", "hm")


def test_there_are_no_cache_marks():
    assert "cache_control" not in str(body_of(Request("You help.", CONVERSATION, tools=(TOOL,))))


def test_without_a_system_text_there_is_none():
    assert "system" not in body_of(Request("", CONVERSATION))


def test_tools_that_may_not_be_called_are_left_out_for_it_knows_no_tool_choice():
    asked = Request("", CONVERSATION, tools=(TOOL,))
    forbidden = Request("", CONVERSATION, tools=(TOOL,), may_call_tools=False)
    assert [tool["name"] for tool in body_of(asked)["tools"]] == ["find"]
    assert not {"tools", "tool_choice"} & body_of(forbidden).keys()
