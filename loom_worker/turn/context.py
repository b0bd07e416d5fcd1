"""What the model is sent: the layers of a session's memory and the running turn, fitted into its window."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from loom_worker.core.errors import BudgetExceeded
from loom_worker.core.fence import fence
from loom_worker.core.values.chat import ChatMessage
from loom_worker.core.values.json import Json
from loom_worker.core.values.memory import Remembered
from loom_worker.core.values.sessions import Message, Session
from loom_worker.core.values.turns import Claim
from loom_worker.memory.estimate import usual_tokens
from loom_worker.memory.fit import Context, fit
from loom_worker.memory.layers import Layers, rom, tools_tokens
from loom_worker.memory.pressure import batch
from loom_worker.memory.recalled import as_text
from loom_worker.turn.fencing import RULES, as_data, summaries_as_data
from loom_worker.turn.runtime import AgentRuntime
from loom_worker.turn.tool_offer import offered

HISTORY_MESSAGES = 1_000
"""Messages of L1 that are read; compression keeps it shorter, and this bounds a turn while it is late."""
MARGIN = 1.05
"""What is kept free, where a provider was seen to need more tokens than we count at most."""
STEPS = 20
LAYERS = ("tools", "rom", "kernel", "l2", "l1", "recalled", "patterns", "turn")


def layers_of(
    runtime: AgentRuntime,
    remembered: Remembered,
    *,
    rom: str,
    kernel: Json,
    recalled: str,
    current: Sequence[ChatMessage],
) -> Layers:
    """Everything that may be sent.

    Args:
        recalled: the text that stands beside the current message.
        current: the running turn.
    """
    memory = remembered.state
    return Layers(
        rom=rom,
        kernel=kernel,
        schemas=memory.schemas,
        refs=memory.refs,
        l2=memory.l2_text,
        mark=summaries_as_data(rom),
        history=[replace(message, chat=as_data(message.chat, message.turn_id)) for message in remembered.history],
        recalled=recalled,
        current=current,
        tools=offered(runtime, remembered, current),
    )


def build(runtime: AgentRuntime, layers: Layers, *, ratio: float) -> Context:
    """Fit the layers into the window; rather with the fewest tools than not at all.

    Args:
        ratio: the provider's tokens over our bound, as far as is known; see over_bound.

    Raises:
        BudgetExceeded: ROM, tools and the running turn alone are too large.
    """
    policy = runtime.agent.memory
    fitted = partial(
        fit,
        budget_tokens=int(runtime.input_budget_tokens / scale(ratio)),
        shares=policy.shares,
        has_swap=policy.has_swap,
        count=runtime.count,
    )
    try:
        return fitted(layers)
    except BudgetExceeded:
        if len(layers.tools) == len(runtime.least_specs):
            raise
        return fitted(replace(layers, tools=runtime.least_specs))


def over_bound(runtime: AgentRuntime, correction: float | None) -> float:
    """The provider's tokens over our bound in a long request.

    Args:
        correction: its tokens over our estimate, as its latest reply told; None before any.
    """
    return (correction or 1.0) * runtime.typical


def scale(ratio: float) -> float:
    """By how much the provider may count more than our bound, 1 or above; in steps, so that a reply seldom moves it."""
    return max(1.0, ceil(ratio * MARGIN * STEPS) / STEPS)


def rom_of(runtime: AgentRuntime, first_sent: str | None, standing: Callable[[], str]) -> str:
    """The system text of a session: as first sent, else made now.

    Args:
        standing: gives what it says of skills.
    """
    if first_sent is not None:
        return first_sent
    allowance = int(runtime.agent.memory.shares.rom * runtime.input_budget_tokens)
    prompt = f"{runtime.agent.system_prompt.strip()}\n\n{RULES}" if runtime.specs else runtime.agent.system_prompt
    prompt = "\n\n".join(part for part in (prompt.strip(), standing()) if part)
    return rom(prompt, runtime.schema, allowance_tokens=allowance, count=runtime.count)


def kernel_of(source: Claim | Session) -> Json:
    """The kernel of a session, with the user it was made for."""
    return {**({"user": source.user} if source.user else {}), **source.kernel}


def is_pressed(runtime: AgentRuntime, remembered: Remembered, said: Sequence[Message]) -> bool:
    """True if L1 is to be compressed once these messages are in it."""
    policy = runtime.agent.memory
    history = (*remembered.history, *said)
    # The policy's least is looked at first: most turns need no counting.
    if len(history) <= policy.min_l1_messages:
        return False
    return batch(history, room=runtime.l1, policy=policy, count=runtime.count) is not None


def shown(runtime: AgentRuntime, remembered: Remembered, session: Session, *, rom: str) -> Json:
    """What the model would be sent now, layer by layer, in the provider's tokens, and how many messages of L1."""
    layers = layers_of(
        runtime,
        remembered,
        rom=rom,
        kernel=kernel_of(session),
        recalled=as_text(remembered.recalled, fence),
        current=(),
    )
    try:
        context = build(runtime, layers, ratio=over_bound(runtime, session.token_correction))
    except BudgetExceeded:  # no turn can be answered so; that is to be seen, too
        fixed = {"tools": tools_tokens(runtime.least_specs, runtime.count), "rom": runtime.count(layers.rom)}
        context = Context(layers.rom, "", (), 0, {**dict.fromkeys(LAYERS, 0), **fixed})
    return {**shown_tokens(runtime, context, session.token_correction), "messages": context.l1_messages}


def estimate(runtime: AgentRuntime, context: Context) -> float:
    """The tokens that a request usually is; the context's own are the most it can be."""
    most = sum(context.tokens.values())
    return usual_tokens(most, context.messages, len(context.tools), text_share=runtime.typical, frame=runtime.frame)


def shown_tokens(runtime: AgentRuntime, context: Context, correction: float | None) -> dict[str, int]:
    """Tokens by layer, as the provider would count them: by our estimate, and by what its replies told of that."""
    ratio = estimate(runtime, context) * (correction or 1.0) / (sum(context.tokens.values()) or 1)
    return {layer: round(tokens * ratio) for layer, tokens in context.tokens.items()}
