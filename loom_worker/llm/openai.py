"""The adapter for OpenAI and all who speak its formats: makers, gateways, and servers on the user's own machine.

The official SDK provides the client, its transport and typed errors; ``presets`` says how each server differs. OpenAI's
own is asked by Responses, in which a model may think between calls; all others by Chat Completions.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Unpack

from loom_worker.core.errors import LoomError, ProviderFailed
from loom_worker.core.values.chat import Reply, Request
from loom_worker.core.values.json import Json
from loom_worker.llm.assembly import Assembly
from loom_worker.llm.http_model import NO_KEY, CallOptions, HttpModel, ModelServer, error_response, without_others
from loom_worker.llm.openai_chat import ChatAssembly, chat_body
from loom_worker.llm.openai_responses import ResponseAssembly, fits, responses_body
from loom_worker.llm.presets import Preset, preset
from loom_worker.llm.prices import with_cost
from loom_worker.llm.provider_errors import ADVICE, IN_FILE, safe_detail
from loom_worker.llm.shaped import as_tool

if TYPE_CHECKING:
    import httpx2

    from loom_worker.llm.http_model import SdkClient

log = logging.getLogger(__name__)

MOST_BLANK = 400
"""Blank characters in a row with which a small model is stuck: one wrote line breaks for ten minutes (measured). The
usage, which comes last, is then not known; elsewhere, where it has a price, the model is heard out."""
LACKS_MEMORY = "requires more system memory"
MOST_CHARS_A_TOKEN = 8
"""No tokenizer packs more into one token of prose, code or JSON (4 to 5 are usual): otherwise the prompt was cut."""
CUT = "%s cut the prompt: of %d characters it read %d tokens. Raise its %s, see docs/providers.md"


class OpenAi(HttpModel):
    """A Model that speaks one of OpenAI's formats; its name is ``<preset>/<model>``."""

    def __init__(
        self,
        *,
        model: str,
        preset: str = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
        in_file: bool = False,
        **options: Unpack[CallOptions],
    ) -> None:
        """Nothing is imported or connected before the first reply; BadSettings: the address is none, or is lacking.

        Args:
            preset: of presets.json.
            base_url: None: the preset's own; for Ollama as in OLLAMA_HOST.
            api_key: goes to that address alone. None: there is none, whatever the environment holds.
            in_file: an agent's file names the address or the key.
        """
        super().__init__(server(preset, base_url, api_key, in_file=in_file), model=model, **options)


def server(name: str, base_url: str | None, api_key: str | None, *, in_file: bool = False) -> "OpenAiServer":
    """The server of a provider at its own address, or at another; raises as Preset.at."""
    found, url = preset(name).at(base_url)
    return OpenAiServer(found, url, api_key, name, in_file)


@dataclass(frozen=True, slots=True)
class OpenAiServer(ModelServer):
    """A server that speaks OpenAI's formats, in the way of its preset."""

    preset: Preset
    base_url: str
    api_key: str | None = field(repr=False)
    provider: str
    """The prefix of its models' names in Loom."""
    in_file: bool = False
    """An agent's file names its address or its key."""

    sdk = "openai"

    def named(self, model: str) -> str:
        return f"{self.provider}/{model}"

    @property
    def advice(self) -> Mapping[int, str]:
        """In the words of its preset, or by its variables."""
        own, key = self.preset, self.preset.key or "its key"
        told = ADVICE | {
            401: f"It does not accept the API key: set {key}.",
            403: f"The API key ({key}) has no permission for this, or not for this model.",
            404: f"It does not know the model {{model!r}}, or the address is wrong: set LOOM_MODEL{_or(own.address)}.",
        }
        return (IN_FILE if self.in_file else told) | {int(status): text for status, text in own.advice.items()}

    @property
    def bad_address(self) -> str:
        return f"The address of {self.provider} is no URL: set {self.preset.address or 'llm.base_url'}."

    @property
    def unreachable(self) -> str:
        own = self.preset
        start = f"start it with `{own.start}`, or set {own.address}" if own.start else ""
        return f"{self.provider} does not answer at {self.base_url}: {start or 'the connection failed'}"

    @property
    def secret(self) -> str | None:
        """The API key, if there is one."""
        return self.api_key

    def new_client(self, http_client: "httpx2.Client") -> "SdkClient":
        import openai

        if self.api_key is None and self.base_url == self.preset.url and not self.preset.local:
            raise ProviderFailed(f"There is no key for {self.provider}: set {self.preset.key}.")
        key = self.api_key or NO_KEY
        http_client.event_hooks["request"].append(lambda request: _strip(request, key))
        # What is left out here, the SDK would take from the variables of OpenAI, which are meant for OpenAI's address.
        return openai.OpenAI(
            api_key=key,
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=self.base_url,
            max_retries=0,
            http_client=http_client,
        )

    def formed(self, request: Request, model: str) -> Request:
        """With a tool in place of a shape that the server cannot enforce on this request."""
        may_call = bool(request.tools) and request.may_call_tools
        is_native = self.preset.shape == "native" or (self.preset.shape == "alone" and not may_call)
        return request if is_native else as_tool(request)

    def body(self, request: Request, model: str) -> Json:
        make = responses_body if self.preset.responses and fits(request) else chat_body
        return make(request, self.named(model), self.preset)

    def path(self, body: Json) -> str:
        return "/responses" if "input" in body else "/chat/completions"

    def assembly(self, model: str, body: Json, *, max_bytes: int) -> Assembly:
        if "input" in body:
            return ResponseAssembly(self.named(model), max_bytes=max_bytes)
        most_blank = MOST_BLANK if self.preset.local or self.preset.name == "compatible" else None
        return ChatAssembly(self.named(model), max_bytes=max_bytes, most_blank=most_blank)

    def finished(self, reply: Reply, body: Json) -> Reply:
        """At the price that the server told, or else that of the table; with a warning if the prompt was cut."""
        own, read_tokens = self.preset, reply.usage.sent_tokens
        sent = json.dumps(body, ensure_ascii=False) if own.window and read_tokens else ""
        sent_chars = 0 if '"image_url"' in sent else len(sent)
        if sent_chars > MOST_CHARS_A_TOKEN * read_tokens:
            log.warning(CUT, self.provider, sent_chars, read_tokens, own.window)
        return with_cost(reply) if reply.usage.cost_usd is None else reply

    def translated(self, error: Exception, model: str) -> LoomError | None:
        told = error_response(error)
        if told is None or LACKS_MEMORY not in told.message:
            return None
        detail = safe_detail(told.message, None)  # answered as 500, but no waiting helps
        return ProviderFailed(f"{self.provider} cannot load {model!r}: choose a smaller model (LOOM_MODEL). {detail}")


def _or(variable: str) -> str:
    return f" or {variable}" if variable else ""


def _strip(request: "httpx2.Request", key: str) -> None:
    """Leave out headers that the SDK takes from variables of OpenAI's, and send no key but the server's own."""
    without_others(request)
    if "authorization" in request.headers:  # after a redirect to another host there is none
        request.headers["authorization"] = f"Bearer {key}"
