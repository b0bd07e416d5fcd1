"""JSON Schema of messages between agents."""

from loom_worker.core.values.agent_messages import AgentMessage
from web.schemas import CUT, TEXT, Schema, answer, described, members, or_null

AGENT_MESSAGE: Schema = answer(
    members(
        AgentMessage,
        "id object to from from_session_id from_turn_id kind message ref in_reply_to status reason attempts turn_id "
        "user created_at expires_at ended_at",
        object={"const": "agent_message"},
        to=described(TEXT, "The agent that it is for."),
        from_session_id=TEXT,
        message=described(TEXT, "The text; with `ref` only its beginning."),
        ref=described(or_null(TEXT), "Of the whole text, where it is stored as a large result."),
        in_reply_to=described(or_null(TEXT), "The message that it answers."),
        reason=described(or_null(TEXT), "Of a dead one: `expired` (nobody took it) or `attempts` (all turns failed)."),
        turn_id=described(or_null(TEXT), "The turn that took it last."),
        **{"from": described(TEXT, "The agent that sent it.")},
    ),
    description="A message from one agent to another. queued: nobody has it; taken: a turn that goes on has it; "
    "done: that turn is completed; dead: nobody gets it any more.",
    also=CUT,
)
