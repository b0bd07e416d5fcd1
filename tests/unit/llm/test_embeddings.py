"""Embedding models: one contract for those behind HTTP and on this machine; retries, breaker, and what is sent."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from loom_worker.core.errors import Interrupted, LeftAlone, LoomError, Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.budgets import usd
from loom_worker.guard.limits import Breakers
from loom_worker.llm.embeddings import (
    BATCH_TEXTS,
    BATCH_TOKENS,
    Careful,
    Embedder,
    InputRefused,
    batches,
    cut,
    sourced,
)
from loom_worker.llm.embeddings_http import EmbeddingApi, HttpEmbedder, OllamaEmbed, OpenAiEmbed, Voyage
from loom_worker.llm.embeddings_local import HashedWords, StaticModel
from tests.support.embedding_server import EmbeddingServer, embedding_server

WORDS = ("apple", "pear", "boat")


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddingServer]:
    with embedding_server() as server:
        yield server


@pytest.fixture
def server(running: EmbeddingServer) -> EmbeddingServer:
    running.asked.clear()
    running.refuses, running.answers = (lambda _: None), None
    return running


def static_model(folder: Path, **tensors: Any) -> Path:
    """A model of three tokens, as model2vec writes it."""
    folder.mkdir()
    vocabulary = {word: n for n, word in enumerate((*WORDS, "[UNK]"))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    matrix = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 0, 1], [0.1, 0.1, 0.1]], np.float32)
    save_file({"embeddings": matrix, **tensors}, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    return folder


def embedder(kind: str, server: EmbeddingServer, tmp_path: Path) -> Embedder:
    if kind == "local":
        return StaticModel(static_model(tmp_path / "fruit"))
    if kind == "scripted":
        return HashedWords()
    apis: dict[str, EmbeddingApi] = {
        "openai": OpenAiEmbed(server.url + "/v1", "sk-1"),
        "voyage": Voyage(server.url + "/v1", "pa-1"),
        "ollama": OllamaEmbed(server.url),
    }
    return HttpEmbedder(apis[kind], "small")


def embed(model: Embedder, *texts: str, timeout_s: float = 20, **more: Any) -> Any:
    return model.embed(texts, **{"kind": "document", "may_be_sent": lambda: True, **more}, timeout_s=timeout_s)


@pytest.mark.cases("kind", ["openai", "voyage", "ollama", "local", "scripted"])
def test_each_text_gets_its_vector_in_order_and_what_is_alike_is_near(
    kind: str, server: EmbeddingServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = embedder(kind, server, tmp_path_factory.mktemp("models"))
    found = embed(model, "apple pear", "boat", "apple")
    fruit, boat, apple = found.vectors
    assert _cosine(fruit, apple) > 0.5 > abs(_cosine(boat, apple))
    assert embed(model, "boat").vectors[0] == pytest.approx(boat)
    assert found.usage.input_tokens == 4
    assert found.usage.llm_calls == 1
    assert model.name.startswith(f"{kind}/")


def _cosine(one: Any, other: Any) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def test_each_provider_is_asked_as_it_expects(server: EmbeddingServer, tmp_path: Path) -> None:
    for kind in ("openai", "voyage", "ollama"):
        embed(embedder(kind, server, tmp_path), "apple", kind="query")
    openai, voyage, ollama = server.asked
    assert (openai["path"], openai["key"], openai["encoding_format"]) == ("/v1/embeddings", "sk-1", "float")
    assert (voyage["path"], voyage["key"], voyage["input_type"]) == ("/v1/embeddings", "pa-1", "query")
    assert (ollama["path"], ollama["key"], ollama["truncate"]) == ("/api/embed", "", True)
    assert {one["model"] for one in server.asked} == {"small"}


def test_an_embedding_costs_its_list_price_where_one_is_known(server: EmbeddingServer, tmp_path: Path) -> None:
    api = OpenAiEmbed(server.url)
    assert embed(HttpEmbedder(api, "text-embedding-3-small"), "a b c d e").usage.cost_usd == usd("0.0000001")
    assert embed(HttpEmbedder(api, "small"), "a").usage.cost_usd is None
    assert embed(embedder("ollama", server, tmp_path), "a").usage.cost_usd == 0


@pytest.mark.cases(
    ("status", "error"),
    [
        (400, InputRefused),
        (401, ProviderFailed),
        (404, ProviderFailed),
        (413, InputRefused),
        (429, Overloaded),
        (500, StreamBroken),
        (503, Overloaded),
    ],
)
def test_a_refusal_becomes_the_error_that_says_what_to_do(
    status: int, error: type[LoomError], server: EmbeddingServer
) -> None:
    server.refuses = lambda _: (status, {"error": {"message": "no, sk-ant-REDACTED"}})
    with pytest.raises(error) as raised:
        embed(HttpEmbedder(OpenAiEmbed(server.url, "sk-1"), "small"), "apple")
    assert type(raised.value) is error
    assert "abcdef" not in str(raised.value)
    if status == 401:
        assert "LOOM_OPENAI_KEY" in str(raised.value)


@pytest.mark.cases(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": [{"index": 0, "embedding": [float("nan")]}]},
        {"data": [{"index": 0, "embedding": "AAAA"}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
        [1],
    ],
)
def test_what_is_no_answer_is_refused(answer: Any, server: EmbeddingServer) -> None:
    server.answers = lambda _: answer
    with pytest.raises(ProviderFailed):
        embed(HttpEmbedder(OpenAiEmbed(server.url), "small"), "apple")


@pytest.mark.cases("url", ["http://169.254.169.254/latest", "http://user:secret@127.0.0.1:9"])
def test_an_address_that_may_not_be_called_is_not(url: str) -> None:
    with pytest.raises(ProviderFailed, match="may not be asked"):
        embed(HttpEmbedder(OpenAiEmbed(url), "small"), "apple")


def test_a_provider_that_is_not_there_can_be_tried_again() -> None:
    with pytest.raises(StreamBroken, match="cannot be reached"):
        embed(HttpEmbedder(OpenAiEmbed("http://127.0.0.1:9"), "small"), "apple")


def test_nothing_of_a_deleted_session_is_sent(server: EmbeddingServer) -> None:
    with pytest.raises(Interrupted):
        embed(HttpEmbedder(OpenAiEmbed(server.url), "small"), "apple", may_be_sent=lambda: False)
    assert server.asked == []


class Nap:
    """The pauses that were made; each lets this much time pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self, wait_s: float, is_given_up: Any) -> None:
        self.now_s += wait_s


def careful(server: EmbeddingServer, valkey: redis.Redis, nap: Nap) -> Careful:
    model = HttpEmbedder(OpenAiEmbed(server.url), "small")
    return Careful(model, Breakers(valkey), pause=nap, chance=lambda: 1.0, clock=lambda: nap.now_s)


def test_a_failed_request_is_made_again_and_one_that_is_refused_is_not(
    server: EmbeddingServer, valkey: redis.Redis
) -> None:
    nap = Nap()
    server.refuses = lambda _: (500, {}) if len(server.asked) < 3 else None
    assert len(embed(careful(server, valkey, nap), "apple").vectors) == 1
    assert len(server.asked) == 3
    assert nap.now_s == 1.5
    server.refuses = lambda _: (404, {})
    with pytest.raises(ProviderFailed):
        embed(careful(server, valkey, nap), "apple")
    assert len(server.asked) == 4


def test_no_try_begins_behind_the_deadline(server: EmbeddingServer, valkey: redis.Redis) -> None:
    server.refuses = lambda _: (500, {})
    with pytest.raises(StreamBroken):
        embed(careful(server, valkey, Nap()), "apple", timeout_s=1)
    assert len(server.asked) == 2


def test_a_provider_that_keeps_failing_is_left_alone(server: EmbeddingServer, valkey: redis.Redis) -> None:
    server.refuses = lambda _: (500, {})
    model = careful(server, valkey, Nap())
    for text in ("apple", "apple", "pear", "boat", "a pear", "a boat"):  # the fifth text opens it
        with pytest.raises(StreamBroken):
            embed(model, text, timeout_s=0.1)
    with pytest.raises(LeftAlone, match="left alone"):
        embed(model, "apple")
    assert len(server.asked) == 6


def test_one_session_s_texts_keep_the_provider_from_nobody(server: EmbeddingServer, valkey: redis.Redis) -> None:
    server.refuses = lambda _: (500, {})
    model = careful(server, valkey, Nap())
    for source, lefts in (("poison", 9), ("a", 1), ("b", 1), ("c", 1), ("d", 1)):
        for n in range(lefts):
            with pytest.raises(StreamBroken):
                embed(sourced(source, model), f"apple {n}", timeout_s=0.1)
    with pytest.raises(LeftAlone):
        embed(model, "apple")


def test_a_batch_holds_as_much_as_a_request_may() -> None:
    def count(text: str) -> int:
        return int(text)

    assert list(batches([], count)) == []
    assert [len(batch) for batch in batches(["1"] * (BATCH_TEXTS + 1), count)] == [BATCH_TEXTS, 1]
    sizes = [str(BATCH_TOKENS - 1), "1", "1", str(2 * BATCH_TOKENS), "1"]
    assert list(batches(sizes, count)) == [range(2), range(2, 3), range(3, 4), range(4, 5)]


def test_a_long_text_is_cut_to_the_window() -> None:
    assert cut("äbc" * 100, len, most_tokens=10) == "äbcäbcäbcä"
    assert cut("short", len, most_tokens=10) == "short"


def test_weights_and_a_mapping_of_a_static_model_count(tmp_path: Path) -> None:
    more = {"weights": np.array([0, 1, 1, 1], np.float32), "mapping": np.array([0, 1, 2, 3], np.int64)}
    model = StaticModel(static_model(tmp_path / "weighted", **more))
    [vector] = embed(model, "apple boat").vectors
    assert vector == pytest.approx([0, 0, 0.5])
    assert embed(model, "").vectors == ([0, 0, 0],)


def test_what_is_missing_of_a_static_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderFailed, match=r"tokenizer\.json"):
        embed(StaticModel(tmp_path / "none"), "apple")
    folder = static_model(tmp_path / "damaged")
    (folder / "model.safetensors").write_bytes(json.dumps({}).encode())
    with pytest.raises(ProviderFailed, match="cannot be read"):
        embed(StaticModel(folder), "apple")
