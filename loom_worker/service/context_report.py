"""What clients may know of a session's window, and what would not fit into it, before any model is asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from loom_worker.core.errors import Flaw, Invalid
from loom_worker.core.text import fence
from loom_worker.core.values.budgets import LEAST_REPLY_TOKENS, CallCost
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.memory import MemoryState, Remembered
from loom_worker.core.values.sessions import Session
from loom_worker.core.values.tenants import Tenant, workspace_of
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.llm.prices import rates
from loom_worker.memory.kernel import facts_tokens
from loom_worker.memory.layers import message_tokens, tools_tokens
from loom_worker.memory.recalled import RECALLED_SHARE, recalled_tokens
from loom_worker.store.budgets import Budgets
from loom_worker.store.database import Database
from loom_worker.store.dated_summaries import DatedSummaries
from loom_worker.store.facts import Facts
from loom_worker.store.memory import Memories
from loom_worker.store.sessions import Sessions
from loom_worker.store.vectors import MessageVectors, Reach
from loom_worker.turn import context
from loom_worker.turn.agent_runtime import AgentRuntime, AgentRuntimes, PromptKnowledge


class TierFigures:
    """What a session has beyond its context."""

    def __init__(self, database: Database) -> None:
        self._summaries, self._facts = DatedSummaries(database), Facts(database)
        self._memories = Memories(database)

    def of(self, session: Session, tiers: MemoryTiers, state: MemoryState) -> Json:
        """``tiers`` of the Context: the session's summaries by date, and the facts that it can be told."""
        summaries, messages, to_ms = self._summaries.figures(session.lane)
        return {
            "summaries": summaries,
            "summarized_messages": messages,
            "summarized_until": rfc3339(to_ms),
            "waiting_messages": self._memories.undated(session.lane, state),
            "scope": tiers.scope,
            "open_facts": self._facts.open_count(session.lane, tiers.scope) if tiers.has_knowledge else 0,
        }


@dataclass(frozen=True, slots=True)
class ContextReport:
    """Reports on contexts from agents and the store; connects to nothing but the agent's own data."""

    agents: AgentRuntimes
    knowledge: PromptKnowledge
    sessions: Sessions
    memories: Memories
    tiers: TierFigures
    vectors: MessageVectors
    budgets: Budgets

    @classmethod
    def at(cls, agents: AgentRuntimes, knowledge: PromptKnowledge, database: Database) -> "ContextReport":
        """Reports on the sessions of a database."""
        stores = (TierFigures(database), MessageVectors(database), Budgets(database))
        return cls(agents, knowledge, Sessions(database), Memories(database), *stores)

    def context(self, tenant: Tenant, session_id: str) -> Json:
        """What the model would be sent now (API: ``GET …/context``); NotFound: the tenant has no such session."""
        session = self.sessions.get(tenant, session_id)
        runtime = self._runtime(session)
        remembered = self.memories.load(session.lane, limit=context.HISTORY_MESSAGES)
        rom, learned = self._rom(runtime, session)
        tokens = context.shown(runtime, remembered, session, rom=rom)
        layers: Json = {
            name: {"tokens": tokens[name], "share": round(tokens[name] / runtime.input_budget_tokens, 4)}
            for name in ("tools", "rom", "kernel", "l2", "l1", "recalled", "patterns")
        }
        tiers = runtime.agent.tiers
        layers["l1"]["messages"] = tokens.pop("messages")
        del tokens["most"]
        layers["recalled"]["messages"] = len(remembered.recalled)
        return {
            "object": "context",
            "session_id": session_id,
            "layers": layers,
            "input_budget_tokens": runtime.input_budget_tokens,
            "used_tokens": sum(tokens.values()),
            "model": runtime.model.name,
            "rom_digest": sha256(rom.encode()).hexdigest()[:16],
            "agent_version": session.agent_version or runtime.agent.version,
            "learned": learned,
            "memory_version": remembered.state.version,
            "tiers": None if tiers is None else self.tiers.of(session, tiers, remembered.state),
            "embeddings": self._embeddings(session, runtime),
        }

    def recall(self, tenant: Tenant, session_id: str, message_ids: Sequence[str]) -> int:
        """Add messages to the session's next questions; returns the tokens of all that are recalled.

        Raises:
            NotFound: the tenant has no such session.
            Invalid: the session has no such message, or they are too much; nothing was changed.
        """
        runtime = self._runtime(self.sessions.get(tenant, session_id))
        return self.memories.promote(
            tenant,
            session_id,
            message_ids,
            budget_tokens=int(RECALLED_SHARE * runtime.input_budget_tokens),
            tokens=lambda messages: recalled_tokens(messages, runtime.count, fence),
        )

    def clear_recalled(self, tenant: Tenant, session_id: str) -> None:
        """Recall nothing any more for the session's next question, or raise NotFound."""
        self.memories.clear_promoted(tenant, session_id)

    def check_fits(self, tenant: Tenant, session_id: str, agent: str, message: ChatMessage) -> None:
        """Raise Invalid for a message that would not fit with system text, tools and kernel.

        Args:
            agent: whose session it becomes, should it be new.
        """
        session = self.sessions.known(tenant, session_id, agent)
        free = surely_free(*self.agents.window(session.agent if session else agent))
        if not message.media and 2 * len(message.text.encode()) < free:
            return
        runtime = self._runtime(session, agent, tenant)
        room = room_tokens(runtime, session, rom=self._rom(runtime, session, workspace_of(tenant))[0])
        needed = message_tokens(context.seen(runtime, message), runtime.count)
        if needed > room:
            raise Invalid(
                f"The message takes about {needed} tokens, and {room} are free in the model's window. Send it in "
                "parts, or put it where a tool can read it.",
                (Flaw("/input", f"at most about {room} tokens"),),
                "message-too-large",
            )

    def first_call(self, tenant: Tenant, session: Session | None, agent: str, text: str) -> CallCost:
        """The most that a message and all that goes with it can cost now, with the shortest reply."""
        runtime = self._runtime(session, agent, tenant)
        remembered = self.memories.load(session.lane, limit=context.HISTORY_MESSAGES) if session else Remembered()
        rom, current = self._rom(runtime, session, workspace_of(tenant))[0], [ChatMessage("user", text)]
        most = context.shown(runtime, remembered, session, rom=rom, current=current)["most"]
        return CallCost(most, LEAST_REPLY_TOKENS, *(rates(runtime.model.name, most) or ()))

    def check_kernel(self, agent: str, kernel: Json) -> None:
        """Raise Invalid for a kernel that is larger than its share of the window."""
        runtime = self.agents.runtime(agent)
        most = int(runtime.agent.memory.shares.kernel * runtime.input_budget_tokens)
        needed = facts_tokens(kernel, runtime.count)
        if needed > most:
            raise Invalid(
                f"The kernel takes about {needed} tokens; its share of the model's window is {most}.",
                (Flaw("/kernel", f"at most about {most} tokens"),),
            )

    def _rom(self, runtime: AgentRuntime, session: Session | None, workspace: str = "") -> tuple[str, Json | None]:
        """The system text, and what of the learned layer is in it.

        Args:
            workspace: whose session it becomes, should it be new.
        """
        if session is not None and session.rom is not None:
            return session.rom, session.learned_part
        version = session.learned_version if session else None
        where, lane = (session.workspace, session.lane) if session else (workspace, "")
        learned = self.knowledge.learned(where, lane, runtime.agent, version)
        made = context.new_rom(runtime, self.knowledge, learned)
        return made.text, None if made.learned is None else made.learned.as_json()

    def _embeddings(self, session: Session, runtime: AgentRuntime) -> Json | None:
        """How far the session's messages have vectors; None: the agent's file enables none."""
        tiers = runtime.agent.tiers
        if tiers is None or not tiers.has_embeddings:
            return None
        embedded = self.vectors.embedded(session.lane, tiers.embedding_model)
        missing = self.vectors.left(Reach(session.lane), tiers.embedding_model)
        return {"model": tiers.embedding_model, "messages": embedded, "missing": missing}

    def _runtime(self, session: Session | None, agent: str = "", tenant: Tenant = "") -> AgentRuntime:
        if session is None:
            return self.agents.runtime(agent, workspace=workspace_of(tenant))
        return self.agents.runtime(session.agent, session.choice, session.workspace)


def room_tokens(runtime: AgentRuntime, session: Session | None, *, rom: str) -> int:
    """What a message may take at most: the input budget minus tools, system text and additions."""
    budget = runtime.input_budget_tokens
    ratio = context.over_bound(runtime, session.token_correction if session else None)
    fixed = runtime.count(rom) + tools_tokens(runtime.least_specs, runtime.count) + context.addition_tokens(budget)
    return max(0, int(budget / context.scale(ratio)) - fixed)


def surely_free(window_tokens: int, reserved_tokens: int) -> int:
    """What a message may take without being counted: a share of what any usual set of tools leaves."""
    return int(SURE_SHARE * (window_tokens - reserved_tokens - TOOLS_TOKENS))


SURE_SHARE, TOOLS_TOKENS = 0.4, 8_000
