"""Embedding models behind HTTP, without their SDKs: OpenAI's API and what speaks it, Ollama's, and Voyage's."""

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from loom_worker.core.errors import Interrupted, Invalid, LoomError, Overloaded, ProviderFailed, StreamBroken, Transient
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.guard.net.address import Deadline, Lookup, resolve_in_time, target
from loom_worker.guard.net.http import HttpRequest, open_request, retry_after_s
from loom_worker.llm.embeddings import Embedded, InputRefused, MayBeSent, TextKind, Vector, checked
from loom_worker.llm.prices import cost_usd
from loom_worker.llm.provider_errors import safe_detail

OPENAI_URL, VOYAGE_URL = "https://api.openai.com/v1", "https://api.voyageai.com/v1"
MOST_BYTES = 16 * 1024 * 1024
"""Bytes of an answer: 64 vectors of 4,096 dimensions with 20 characters each are 5 MB."""


class EmbeddingApi(Protocol):
    """How one provider is asked, and how it answers."""

    @property
    def provider(self) -> str:
        """Its name in agents' files."""

    @property
    def url(self) -> str:
        """Below which its paths are, without a slash at the end."""

    @property
    def path(self) -> str:
        """What is asked for vectors."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Sent with each request, the key among them."""

    @property
    def key_advice(self) -> str:
        """What to do if it does not accept the key."""

    def body(self, model: str, texts: Sequence[str], kind: TextKind) -> Json:
        """The request."""

    def read(self, answer: Json) -> tuple[list[Vector], int]:
        """The vectors in the order of the texts, and the tokens that count.

        Raises:
            KeyError, TypeError, ValueError: the answer has another form.
        """


@dataclass(frozen=True, slots=True)
class OpenAiEmbed:
    """OpenAI's ``/v1/embeddings``, which many servers speak.

    https://platform.openai.com/docs/api-reference/embeddings
    """

    url: str = OPENAI_URL
    key: str | None = field(default=None, repr=False)
    provider: str = "openai"
    path: str = "/embeddings"
    key_advice: str = "set LOOM_OPENAI_KEY"

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def body(self, model: str, texts: Sequence[str], kind: TextKind) -> Json:
        return {"model": model, "input": list(texts), "encoding_format": "float"}

    def read(self, answer: Json) -> tuple[list[Vector], int]:
        ordered = sorted(answer["data"], key=lambda each: int(each["index"]))
        usage = answer.get("usage") or {}
        return [each["embedding"] for each in ordered], int(
            usage.get("prompt_tokens") or usage.get("total_tokens") or 0
        )


@dataclass(frozen=True, slots=True)
class Voyage(OpenAiEmbed):
    """Voyage AI's ``/v1/embeddings``: OpenAI's form, but for the kind of a text.

    https://docs.voyageai.com/reference/embeddings-api
    """

    url: str = VOYAGE_URL
    provider: str = "voyage"
    key_advice: str = "set LOOM_VOYAGE_KEY"

    def body(self, model: str, texts: Sequence[str], kind: TextKind) -> Json:
        return {"model": model, "input": list(texts), "input_type": kind, "truncation": True}


@dataclass(frozen=True, slots=True)
class OllamaEmbed:
    """Ollama's ``/api/embed``.

    https://docs.ollama.com/api/embed
    """

    url: str
    provider: str = "ollama"
    path: str = "/api/embed"
    key_advice: str = "sign it in for this model: `ollama signin`"
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, model: str, texts: Sequence[str], kind: TextKind) -> Json:
        """Windows of local models are often shorter than what is sent, so it cuts once more."""
        return {"model": model, "input": list(texts), "truncate": True}

    def read(self, answer: Json) -> tuple[list[Vector], int]:
        return list(answer["embeddings"]), int(answer.get("prompt_eval_count") or 0)


@dataclass(frozen=True, slots=True)
class HttpEmbedder:
    """An Embedder behind an API; nothing is connected before the first request."""

    api: EmbeddingApi
    model: str
    stopping: Stopping | None = None
    lookup: Lookup = socket.getaddrinfo

    @property
    def name(self) -> str:
        return f"{self.api.provider}/{self.model}"

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        if self.stopping is not None and self.stopping.is_asked:
            raise Interrupted("The worker stops.")
        answer = self._answer(self.api.body(self.model, texts, kind), timeout_s, may_be_sent)
        try:
            vectors, tokens = self.api.read(json.loads(answer))
            found = checked([[float(number) for number in vector] for vector in vectors], len(texts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProviderFailed(f"{self.api.url} does not speak the embeddings API of {self.api.provider}.") from error
        usage = Usage(input_tokens=tokens, llm_calls=1)
        return Embedded(found, Usage(input_tokens=tokens, llm_calls=1, cost_usd=cost_usd(self.name, usage)))

    def _answer(self, body: Json, timeout_s: float, may_be_sent: MayBeSent) -> bytes:
        deadline = Deadline(max(timeout_s, 0.001))
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **self.api.headers}

        def check() -> None:
            if not may_be_sent():
                raise Interrupted("Nothing was sent: the session is deleted.")

        try:
            # The operator names the address, so it may be on this machine, or in its network.
            goal = target(self.api.url + self.api.path, allow_private=True)
            addresses = resolve_in_time(goal, deadline, allow_private=True, lookup=self.lookup)
            # A lone surrogate, which a client may have sent, becomes an escape that any parser of JSON takes.
            asked = HttpRequest("POST", goal.path, headers, json.dumps(body).encode())
            with closing(open_request(goal, addresses, asked, deadline=deadline, before_sending=check)) as answer:
                found = _whole(answer.chunks())
        except Invalid as error:
            raise ProviderFailed(f"The embeddings of {self.name} may not be asked for: {error}") from error
        except Transient as error:
            raise StreamBroken(f"The embedding provider at {self.api.url} cannot be reached: {error}") from error
        if answer.status != 200:
            raise self._refusal(answer.status, found, answer.headers)
        return found

    def _refusal(self, status: int, body: bytes, headers: Mapping[str, str]) -> LoomError:
        says = _detail(body)
        if status in (429, 503, 529):
            wait_s = retry_after_s(headers.get("Retry-After"), now_s=time.time())
            return Overloaded(f"The embedding provider of {self.name} is busy (HTTP {status}).", wait_s)
        if status >= 500 or status in (408, 425):
            return StreamBroken(f"The embedding provider of {self.name} failed (HTTP {status}).")
        if status in (401, 403):
            text = f"The embedding provider of {self.name} does not accept the key (HTTP {status}): "
            return ProviderFailed(text + self.api.key_advice + ".")
        if status in (400, 413, 422):
            return InputRefused(f"The embedding provider of {self.name} refused texts (HTTP {status}). {says}".strip())
        text = f"The embedding provider at {self.api.url} has no model {self.model!r} (HTTP {status})."
        return ProviderFailed(f"{text} {says}".strip())


def _whole(chunks: Iterator[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MOST_BYTES:
            raise Transient(f"its answer is longer than {MOST_BYTES} bytes")
    return bytes(body)


def _detail(body: bytes) -> str:
    try:
        error = json.loads(body)
    except ValueError:
        return ""
    found = error.get("error", error.get("detail", "")) if isinstance(error, dict) else ""
    message = found.get("message", "") if isinstance(found, dict) else found
    return safe_detail(message, None) if isinstance(message, str) else ""
