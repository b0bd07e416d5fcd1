"""What the conventions call something is called so, in the version that is named."""

import ast
import importlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import opentelemetry.semconv
import pytest
from opentelemetry.semconv.schemas import Schemas

from loom_worker.core.values.agents import PROVIDERS
from loom_worker.core.values.chat import Usage
from loom_worker.runtime.sweeping import process_name
from loom_worker.trace import names

PACKAGE = Path(names.__file__).parent
THEIRS = ("gen_ai.", "error.", "http.", "process.", "server.", "url.")
"""How names of the conventions begin."""


def conventions() -> frozenset[str]:
    """The names of all attributes that the installed conventions have."""
    root, found = Path(opentelemetry.semconv.__path__[0]), set[str]()
    for path in root.rglob("*_attributes.py"):
        parts = path.relative_to(root).with_suffix("").parts
        known = vars(importlib.import_module(".".join(("opentelemetry.semconv", *parts))))
        found |= {text for name, text in known.items() if name.isupper() and isinstance(text, str)}
    return frozenset(found)


def used() -> Iterator[str]:
    """The names of the conventions that the package uses."""
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and re.fullmatch(r"[a-z_.]*[a-z]", text) and text.startswith(THEIRS):
                yield text


def test_every_attribute_that_is_named_after_the_conventions_is_one_of_them() -> None:
    known, ours = conventions(), frozenset(used()) - {names.HTTP_REQUEST}  # the name of a span
    assert len(ours) > 20
    assert sorted(ours - known) == []


def test_the_version_that_is_named_is_one_of_the_conventions() -> None:
    assert names.SCHEMA_URL in {schema.value for schema in Schemas}


def test_a_provider_is_called_as_the_conventions_call_it_where_they_know_it() -> None:
    from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiProviderNameValues

    known = {value.value for value in GenAiProviderNameValues}
    hosted = set(PROVIDERS) - {"together", "openrouter", "scripted", "vllm", "ollama", "lmstudio"}
    assert sorted({names.provider(each) for each in hosted} - known) == []
    assert names.provider("ollama") == "ollama"


@pytest.mark.parametrize(
    ("usage", "missing"),
    [
        (Usage(5, 1), {"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"}),
        (Usage(5, 1, 2, 3, None), {"loom.cost_usd"}),
        (Usage(5, 1, 2, 3), set()),
    ],
)
def test_what_is_not_known_of_usage_is_left_out(usage: Usage, missing: set[str]) -> None:
    whole = set(names.usage(Usage(5, 1, 2, 3)))
    assert whole - set(names.usage(usage)) == missing
    assert names.usage(usage)["gen_ai.usage.input_tokens"] == usage.sent_tokens


def test_a_trace_names_a_worker_as_lists_do_and_one_of_an_older_loom_as_it_was_stored() -> None:
    assert names.worker(process_name("worker-1")) == f"worker-1@{socket.gethostname()}"
    assert (names.worker("host-7-c0ffee00"), names.worker(None)) == ("host-7-c0ffee00", None)
