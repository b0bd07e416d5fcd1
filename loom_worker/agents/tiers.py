"""The ``sessions.memory`` and ``storage`` of an agent's file: the tiers in which it remembers more than a session.

All raise InvalidField for a value that cannot be used, or that contradicts another one.
"""

from dataclasses import replace

from loom_worker.agents.memory import BATCHES
from loom_worker.agents.models import beside
from loom_worker.core.fields import Fields, present
from loom_worker.core.values.agents import PROVIDERS, ModelChoice, provider_and_model
from loom_worker.core.values.memory import MemoryPolicy
from loom_worker.core.values.tiers import EMBEDDING_PROVIDERS, SCOPES, STRATEGIES, MemoryTiers

ACTIVE_WINDOW = 20
"""Messages of L1 where a file has tiers and no other limit."""
MOST_NAME = 180
"""Characters of an embedding model's name, as its vectors keep it."""
EMBEDS_ONLY = "voyage/"
"""A provider whose models write no summaries."""


def tiers(spec: Fields) -> MemoryTiers | None:
    """The tiers a file asks for, each key with its usual value where it is left out; None: the file asks for none."""
    _check_storage(spec.under("storage"))
    sessions = spec.under("sessions")
    if "memory" not in sessions:
        return None
    memory = sessions.under("memory")
    compaction, summaries = memory.under("compaction"), memory.under("summaries")
    knowledge, embeddings = memory.under("knowledge"), memory.under("embeddings")
    given = present(
        strategy=compaction.choice("strategy", STRATEGIES),
        batch_size=compaction.whole("batch_size", least=2),
        recent_messages=memory.under("recent_store").whole("max_messages"),
        has_summaries=summaries.flag("enabled"),
        extracts_facts=summaries.flag("extract_facts"),
        has_knowledge=knowledge.flag("enabled"),
        scope=knowledge.choice("scope", SCOPES),
        users_write=knowledge.flag("users_write"),
        injects_facts=knowledge.flag("inject"),
        has_embeddings=embeddings.flag("enabled"),
        embedding_model=embeddings.text("model"),
    )
    found = MemoryTiers(**given)
    if found.has_embeddings and not found.embedding_model:
        needed = "a model, such as openai/text-embedding-3-small, as embeddings are enabled,"
        raise embeddings.invalid("model", needed, "nothing")
    provider, slash, name = found.embedding_model.partition("/")
    if found.has_embeddings and not (provider in EMBEDDING_PROVIDERS and slash and name and len(name) <= MOST_NAME):
        needed = "provider/model with a provider of " + ", ".join(EMBEDDING_PROVIDERS)
        raise embeddings.invalid("model", needed, found.embedding_model)
    if found.injects_facts and not found.has_knowledge:
        raise knowledge.invalid("inject", "knowledge.enabled: true", "an agent without knowledge")
    return found


def active_window(spec: Fields, usual: MemoryPolicy) -> MemoryPolicy:
    """A policy with the limit that ``sessions.memory`` sets to L1; the same one where a file has no tiers."""
    sessions = spec.under("sessions")
    if "memory" not in sessions:
        return usual
    memory = sessions.under("memory")
    window = memory.whole("active_window", least=2)
    if window is not None and "max_l1_messages" in spec.under("memory").under("memory_compression"):
        raise memory.invalid("active_window", "one limit, this or memory_compression.max_l1_messages,", "both")
    if window is None and usual.max_l1_messages is not None:
        return usual
    most = window or ACTIVE_WINDOW
    least = min(usual.min_l1_messages, most)
    return replace(usual, max_l1_messages=most, min_l1_messages=least, batches=usual.batches or BATCHES)


def summary_model(spec: Fields) -> ModelChoice:
    """The model that ``compaction.summary_model`` names, of the agent's own provider unless one stands before it.

    Without one it is that of ``compressor_llm``.
    """
    compressor = spec.under("compressor_llm")
    compaction = spec.under("sessions").under("memory").under("compaction")
    chosen, text = beside(compressor), compaction.text("summary_model")
    if text is None:
        return chosen
    if "model" in compressor:
        raise compaction.invalid("summary_model", "one model, this or that of compressor_llm,", "both")
    provider, name = provider_and_model(text)
    if (provider and not name.strip()) or text.startswith(EMBEDS_ONLY):
        raise compaction.invalid("summary_model", "a model of " + ", ".join(PROVIDERS), text)
    if provider in (None, chosen.provider):
        return replace(chosen, model=text)
    return replace(chosen, provider=provider, model=name, base_url=None, secret=None)


def _check_storage(storage: Fields) -> None:
    """Refuse a backend that Loom has no adapter for; what it has follows from LOOM_DATABASE_URL."""
    memory = storage.under("memory")
    for part in (storage, memory, memory.under("knowledge"), storage.under("knowledge")):
        part.choice("backend", ("sqlite",))
    storage.under("vector").choice("backend", ("sqlite_vec",))
