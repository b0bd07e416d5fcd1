"""The Ollama adapter: models on the user's own machine, through the Messages API that Ollama has spoken since 0.14.

It has no key, no price, no prompt cache and no ``tool_choice``. It joins the text blocks of a message without any
space between them, and silently cuts the front off a prompt that is longer than its window. The requests sent here take
the first into account; docs/providers.md explains the window. https://docs.ollama.com/api/anthropic-compatibility
"""

import ipaddress
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Unpack

from loom_worker.core.errors import BadSettings, LoomError, ProviderFailed
from loom_worker.core.values.chat import Reply, Request
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic import MessagesServer
from loom_worker.llm.anthropic_request import request_body
from loom_worker.llm.http_model import NO_KEY, CallOptions, HttpModel
from loom_worker.llm.prices import OLLAMA, with_cost
from loom_worker.llm.provider_errors import ADVICE, read_error, safe_detail

if TYPE_CHECKING:
    import httpx2

    from loom_worker.llm.http_model import SdkClient

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PORT = 11434
PORTS = {"http": 80, "https": 443}
"""Of an address with a scheme and without a port, as Ollama's own commands read it."""
ADDRESS = re.compile(r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]*)(?::(?P<port>\d{1,5}))?/*")
EVERYWHERE = {"0.0.0.0": HOST, "[::]": "[::1]", "": HOST}  # noqa: S104  # addresses to listen on, which no client can call
LACKS_MEMORY = "requires more system memory"
MOST_CHARS_A_TOKEN = 8
"""No tokenizer packs more into one token of prose, code or JSON (4 to 5 are usual): otherwise the prompt was cut."""
CUT = (
    "Ollama cut the prompt: of %d characters it read %d tokens. Raise its OLLAMA_CONTEXT_LENGTH, see docs/providers.md"
)


class Ollama(HttpModel):
    """A Model that Ollama runs; its name is ``ollama/<model>``, so that it is never taken for another model's price."""

    def __init__(self, *, model: str, host: str | None = None, **options: Unpack[CallOptions]) -> None:
        """Nothing is imported or connected before the first reply; BadSettings: the host is no address.

        Args:
            host: as in OLLAMA_HOST, see address.
        """
        super().__init__(OllamaServer(address(host)), model=model, **options)


@dataclass(frozen=True, slots=True)
class OllamaServer(MessagesServer):
    """Ollama at one address."""

    url: str

    advice = ADVICE | {
        401: "It needs to be signed in for this model: `ollama signin`.",
        403: "It may not do this: see its log.",
        404: "Ollama has no model {model!r}: run `ollama pull {model}`, or set LOOM_MODEL.",
    }

    @property
    def bad_address(self) -> str:
        return "The address of Ollama is no URL: set OLLAMA_HOST."

    def named(self, model: str) -> str:
        return OLLAMA + model

    @property
    def unreachable(self) -> str:
        return f"Ollama does not answer at {self.url}: start it with `ollama serve`, or set OLLAMA_HOST"

    def new_client(self, http_client: "httpx2.Client") -> "SdkClient":
        import anthropic

        # The key is given, so that one of Anthropic's in the environment is never sent to this server.
        return anthropic.Anthropic(api_key=NO_KEY, base_url=self.url, max_retries=0, http_client=http_client)

    def body(self, request: Request, model: str) -> Json:
        """Without marks, texts in one block, and without tools that may not be called."""
        demanded = tuple(tool for tool in request.tools if tool.name == request.must_call)
        tools = (demanded or request.tools) if request.may_call_tools else ()
        plain = replace(request, cache_marks=False, tools=tools, must_call="")
        body = request_body(plain, model, needs_signature=False)
        messages = [each | {"content": list(_joined(each["content"], each["role"]))} for each in body["messages"]]
        system = {"system": list(_joined(body["system"], "user"))} if "system" in body else {}
        return body | system | {"messages": messages}

    def finished(self, reply: Reply, body: Json) -> Reply:
        """Under Loom's name for the model, and with a warning if the prompt was cut."""
        sent_chars, read_tokens = len(json.dumps(body, ensure_ascii=False)), reply.usage.input_tokens
        if read_tokens and sent_chars > MOST_CHARS_A_TOKEN * read_tokens:
            log.warning(CUT, sent_chars, read_tokens)
        return with_cost(replace(reply, model=OLLAMA + reply.model))

    def translated(self, error: Exception, model: str) -> LoomError | None:
        import anthropic

        if not isinstance(error, anthropic.APIStatusError):
            return None
        if error.status_code == 404 and not isinstance(error.body, dict):
            return ProviderFailed(
                f"The Ollama at {self.url} does not know the Messages API: update it to 0.14 or later."
            )
        if LACKS_MEMORY in str(error.body):  # answered as 500, but no waiting helps
            detail = safe_detail(read_error(500, error.body).message, None)
            return ProviderFailed(f"Ollama cannot load {model!r}: choose a smaller model (LOOM_MODEL). {detail}")
        return None


def address(host: str | None) -> str:
    """The URL of an OLLAMA_HOST in any of its forms: host, host:port, :port or a URL; None: this machine.

    Raises:
        BadSettings: it has none of these forms.
    """
    raw = (host or "").strip().strip("\"'").strip()
    try:
        is_ipv6 = ipaddress.ip_address(raw).version == 6
    except ValueError:
        is_ipv6 = False
    found = ADDRESS.fullmatch(f"[{raw}]" if is_ipv6 else raw)
    if found is None or int(found["port"] or 1) > 65_535:
        raise BadSettings(f"OLLAMA_HOST={raw!r}: expected host, host:port or http(s)://host[:port]")
    name = EVERYWHERE.get(found["host"], found["host"])
    port = found["port"] or (PORTS[found["scheme"]] if found["scheme"] else PORT)
    return f"{found['scheme'] or 'http'}://{name}:{port}"


def _joined(blocks: list[Json], role: str) -> Iterator[Json]:
    """The blocks, consecutive texts joined into one; those of an assistant are already pieces of one text."""
    between = "" if role == "assistant" else "\n\n"
    for is_text, group in groupby(blocks, key=lambda block: block["type"] == "text"):
        if is_text:
            yield {"type": "text", "text": between.join(block["text"] for block in group)}
        else:
            yield from group
