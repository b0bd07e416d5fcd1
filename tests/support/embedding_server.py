"""A local server that speaks the embeddings APIs of OpenAI, Voyage and Ollama, with vectors of hashed words."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loom_worker.llm.embeddings_local import HashedWords
from tests.support.http_server import Exchange, serving

Json = dict[str, Any]
Refusal = tuple[int, Json]


@dataclass
class EmbeddingServer:
    """What it was asked, and what it answers."""

    url: str = ""
    asked: list[Json] = field(default_factory=list)
    """Each request: its path, its key if it had one, and its body's members."""
    refuses: Callable[[Json], Refusal | None] = lambda asked: None
    """A status and a body to answer instead of vectors."""
    answers: Callable[[Json], Json] | None = None
    """An answer of another form."""

    @property
    def inputs(self) -> list[list[str]]:
        """The texts of each request."""
        return [asked["input"] for asked in self.asked]

    def answer(self, exchange: Exchange) -> None:
        """One request."""
        key = exchange.headers.get("Authorization", "").removeprefix("Bearer ")
        asked = {"path": exchange.path, "key": key, **json.loads(exchange.body())}
        self.asked.append(asked)
        refusal = self.refuses(asked)
        if refusal:
            exchange.answer(refusal[0], json.dumps(refusal[1]).encode())
            return
        made = self.answers or (ollama if exchange.path == "/api/embed" else openai)
        exchange.answer(200, json.dumps(made(asked)).encode())


def openai(asked: Json) -> Json:
    """As OpenAI and Voyage answer; the order of the vectors is none that a client may count on."""
    vectors = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(_vectors(asked))]
    usage = {"total_tokens": sum(len(text.split()) for text in asked["input"])}
    return {"object": "list", "model": asked["model"], "data": vectors[::-1], "usage": usage}


def ollama(asked: Json) -> Json:
    """As Ollama answers."""
    count = sum(len(text.split()) for text in asked["input"])
    return {"model": asked["model"], "embeddings": _vectors(asked), "prompt_eval_count": count}


def _vectors(asked: Json) -> list[Any]:
    found = HashedWords().embed(asked["input"], kind="document", timeout_s=1, may_be_sent=lambda: True)
    return [list(vector) for vector in found.vectors]


@contextmanager
def embedding_server() -> Iterator[EmbeddingServer]:
    """A server that runs while the block does."""
    server = EmbeddingServer()
    with serving(server.answer) as url:
        server.url = url
        yield server
