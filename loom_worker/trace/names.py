"""How spans and their attributes are called.

Side by side: Loom's own names, and OpenTelemetry's semantic conventions for generative AI, of the version below. Those
are still being developed: who moves to another version changes this module alone.
"""

from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json

CONVENTIONS_VERSION = "1.44.0"
"""Version of OpenTelemetry's semantic conventions."""
SCHEMA_URL = f"https://opentelemetry.io/schemas/{CONVENTIONS_VERSION}"
"""Where that version is described; sent along with spans, so that a backend can translate their attributes."""

HTTP_REQUEST = "http.request"
AGENT_CHAT = "agent.chat"
LANE_WAIT = "lane.wait"
TURN_RUN = "turn.run"
PATTERN_MATCH = "pattern.match"
CONTEXT_BUILD = "context.build"
LLM_COMPLETION = "llm.completion"
TOOL_EXECUTE = "tool.execute"
TOOL_PROCESS = "tool.process"
APPROVAL_WAIT = "approval.wait"
ERROR_STORE = "error_store.store"
ERROR_GET = "error_store.get"
JUDGE_SCORE = "judge.score"
STORE_FINISH = "store.finish"
WEBHOOK_DELIVER = "webhook.deliver"
MEMORY_COMPRESS = "memory.compress"
WORKFLOW_RUN = "workflow.run"

ERROR_STORED = "error_stored"
"""Event of ``error_store.store``."""
L2_COMPRESSION_TRIGGERED = "memory.l2_compression_triggered"
"""Event of ``memory.compress``."""

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
AGENT = "gen_ai.agent.name"
AGENT_VERSION = "gen_ai.agent.version"
CONVERSATION = "gen_ai.conversation.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
EVALUATION = "gen_ai.evaluation.name"
SCORE = "gen_ai.evaluation.score.value"
STREAMS = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK_S = "gen_ai.response.time_to_first_chunk"
ERROR_TYPE = "error.type"

MODEL = "llm.model"
TURNS = "conversation.turns"
TOKENS_TOTAL = "conversation.tokens.total"
COST_TOTAL = "conversation.cost.usd"

TOKENS = "loom.tokens"
"""Tokens of this span and those below it: sent and received."""
COST = "loom.cost_usd"

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
"""Where the conventions' word is not that of LOOM_PROVIDER."""


def provider(name: str) -> str:
    """A provider as the conventions call it."""
    return _PROVIDERS.get(name, name)


def worker(process: str | None) -> str | None:
    """A worker as lists and Flower name it, ``worker-1@host``: without what tells its processes apart."""
    return process.rsplit("-", 2)[0] if process and "@" in process else process


def usage(used: Usage) -> Json:
    """What was used, as attributes; the conventions count cached tokens among those of the input."""
    known: Json = {
        "gen_ai.usage.input_tokens": used.sent_tokens,
        "gen_ai.usage.output_tokens": used.output_tokens,
        TOKENS: used.tokens,
    }
    if used.cache_read_tokens:
        known["gen_ai.usage.cache_read.input_tokens"] = used.cache_read_tokens
    if used.cache_write_tokens:
        known["gen_ai.usage.cache_creation.input_tokens"] = used.cache_write_tokens
    if used.cost_usd is not None:
        known[COST] = float(used.cost_usd)
    return known
