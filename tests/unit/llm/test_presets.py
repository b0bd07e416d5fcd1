"""Makers that speak OpenAI's formats: their addresses, and what is special about each."""

import pytest

from loom_worker.core.errors import BadSettings
from loom_worker.core.values.agents import PROVIDERS
from loom_worker.core.values.chat import Thinking
from loom_worker.llm.openai import OpenAi
from loom_worker.llm.presets import address, preset

OTHERS = {"anthropic", "bedrock", "scripted"}


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
    assert preset("ollama").at(spelling)[1] == f"{url}/v1"


@pytest.mark.cases("spelling", ["gpu box", "box:port", "box:99999", "ftp://box", "http://box/path?q", "a:1:2"])
def test_what_is_no_address_is_a_bad_setting(spelling):
    with pytest.raises(BadSettings, match="OLLAMA_HOST"):
        OpenAi(preset="ollama", model="m", base_url=spelling)


@pytest.mark.cases("name", sorted(set(PROVIDERS) - OTHERS))
def test_every_provider_has_a_preset_and_its_models_a_prefix(name):
    where = "https://mine.openai.azure.com" if name == "azure" else None
    assert OpenAi(preset=name, model="meta-llama/llama-4", base_url=where).name == f"{name}/meta-llama/llama-4"
    assert preset(name).at(where)[1].startswith("https://" if not preset(name).local else "http://127.0.0.1")


@pytest.mark.cases(
    ("name", "given", "holds", "url"),
    [
        ("openai", None, "openai", "https://api.openai.com/v1"),
        ("openai", "https://eu.api.openai.com/v1/", "openai", "https://eu.api.openai.com/v1"),
        ("openai", "http://127.0.0.1:8080/v1", "compatible", "http://127.0.0.1:8080/v1"),
        ("openai", "https://evilapi.openai.com/v1", "compatible", "https://evilapi.openai.com/v1"),
        ("azure", "https://mine.openai.azure.com/", "azure", "https://mine.openai.azure.com/openai/v1"),
        ("azure", "https://mine.azure.com/openai/v1", "azure", "https://mine.azure.com/openai/v1"),
        ("ollama", "http://gpu:11434/v1", "ollama", "http://gpu:11434/v1"),
        ("groq", "https://proxy.example.com/groq", "groq", "https://proxy.example.com/groq"),
    ],
)
def test_an_address_of_ones_own_is_asked_as_it_is(name, given, holds, url):
    found, where = preset(name).at(given)
    assert (found.name, where) == (holds, url)


def test_azure_without_an_address_says_which_variable_to_set():
    with pytest.raises(BadSettings, match="AZURE_OPENAI_ENDPOINT"):
        OpenAi(preset="azure", model="gpt")


@pytest.mark.cases(
    ("name", "given", "asked"),
    [
        ("openai", Thinking(effort="low"), {"reasoning_effort": "low"}),
        ("groq", Thinking(budget_tokens=4_000), {"reasoning_effort": "medium"}),
        ("openrouter", Thinking(effort="high"), {"reasoning": {"effort": "high"}}),
        ("openrouter", Thinking(budget_tokens=4_000), {"reasoning": {"max_tokens": 4_000}}),
        ("deepseek", Thinking(effort="high"), {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        (
            "vllm",
            Thinking(effort="low"),
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": True}},
        ),
    ],
)
def test_thinking_is_asked_for_in_each_makers_way(name, given, asked):
    assert preset(name).asks_for(given) == asked


def test_geminis_budget_goes_where_google_reads_it():
    asked = preset("gemini").asks_for(Thinking(budget_tokens=512))
    assert asked["extra_body"]["google"]["thinking_config"]["thinking_budget"] == 512


def test_a_budget_is_an_effort_where_there_are_but_words():
    for tokens, effort in ((1, "low"), (2_048, "low"), (8_192, "medium"), (8_193, "high"), (99_999, "high")):
        assert Thinking(budget_tokens=tokens).nearest_effort == effort


@pytest.mark.cases(
    ("name", "given", "is_kept"),
    [
        ("openai", "toolu_01AbC-x", True),
        ("openai", "x" * 41, False),
        ("mistral", "aB3dE6gH9", True),
        ("mistral", "call_1234", False),
        ("mistral", "toolu_01", False),
    ],
)
def test_ids_of_calls_have_the_makers_form_and_are_the_same_each_time(name, given, is_kept):
    made = preset(name).call_id(given)
    assert (made == given) is is_kept
    assert made == preset(name).call_id(given) != preset(name).call_id(given + "y")
    assert made.isalnum() or name != "mistral"
    assert len(made) == 9 if name == "mistral" else len(made) <= 40


def test_local_servers_are_known_as_such():
    local = {name for name in set(PROVIDERS) - OTHERS if preset(name).local}
    assert local == {"vllm", "ollama", "lmstudio"}
