"""The agents of the harness that talk with each other, and what clients have them do: a seeded plan of turns."""

import random
from collections.abc import Mapping
from dataclasses import replace

from tests.chaos.workload import Mix, Sessions, plan

FRONT = "front"
"""Is asked by clients."""
MAY_CALL: Mapping[str, tuple[str, ...]] = {
    FRONT: ("ann", "ben", "cat"),
    "ann": ("ben", "cat", FRONT),
    "ben": ("ann", "cat", FRONT),
    "cat": ("ann", "dot"),
    "dot": (FRONT,),
}
"""Agents by name, with those they may call: there are circles, and paths that are longer than allowed."""
REFERENCE_BYTES = 1_024
"""What an agent says to another from this size on is passed by reference."""
GONE_S = (0.2, 2.0)
"""When a client cancels: while its turn waits for others, mostly."""

_DEEP = "tools=delegate@ann >tools=ask_agent@ben >>tools=delegate@cat"
SAYS: Mapping[str, float] = {
    "plain": 1,
    "tools=ask_agent@ann": 3,
    "tools=ask_agent@ann >words=400": 2,
    "tools=delegate@ben >tools=note,charge": 3,
    "tools=delegate@ann,delegate@ben,delegate@cat >ann:slow=0.8 >ben:tools=note:0.3,charge": 4,
    f"{_DEEP} >>>tools=note": 3,
    f"{_DEEP},delegate@ann >>>tools=ask_agent@dot": 2,
    "tools=ask_agent@ann,ask_agent@ann >tools=ask_agent@front": 1,
    "tools=ask_agent@ann:1 >slow=5": 2,
    "tools=delegate@ann >tools=ask_agent@ben:1 >>slow=5": 1,
    "tools=send_agent@ann,send_agent@ben tools=delegate@ann,delegate@ben >tools=receive_messages": 4,
    "tools=send_agent@ann:session_state tools=ask_agent@ann >tools=receive_messages >words=20": 2,
    "tools=delegate@cat,receive_messages:4 >tools=ask_agent@ann >>tools=send_agent@front": 3,
    "tools=receive_messages:1": 2,
    "tools=receive_messages": 1,
    "tools=report tools=delegate@ann,send_agent@ben passes tools=delegate@ben >tools=receive_messages": 3,
}
"""Directives (model_server.py) with their weights; most turns that send have the other one read."""


def plan_agents(turns: int, *, sessions: int, seed: int, mix: Mix | None = None, first: int = 5_000) -> Sessions:
    """Turns of the agent that others work for, dealt to sessions.

    Args:
        first: the number in the first mark.
    """
    chance = random.Random(f"agents {seed} {first}")
    dealt = plan(turns, sessions=sessions, seed=seed, mix=mix or Mix(SAYS, cancels=0.15), first=first)
    return {
        name: [
            replace(job, agent=FRONT, cancel_after_s=chance.uniform(*GONE_S) if job.cancel_action else 0.0)
            for job in jobs
        ]
        for name, jobs in dealt.items()
    }


def agent_files() -> Mapping[str, str]:
    """What stands in the file of each agent below its memory."""
    return {name: f"\n  may_call: [{', '.join(called)}]\n" for name, called in MAY_CALL.items()}
