"""JSON Schemas of workspaces: what they have spent, their API keys, and who is who in channels."""

from loom_worker.core.values.api_keys import ApiKey
from loom_worker.core.values.channels import Channel, Pairing
from web.schemas import NUMBER, TEXT, TIME, WHOLE, Schema, answer, array, described, members, or_null, ref

_MEMBERS_OF_KEY = members(
    ApiKey,
    "id object workspace name prefix scopes user requests_per_minute tokens_per_minute rotated_from "
    "created_at expires_at revoked_at last_used_at",
    object={"const": "key"},
    prefix=described(TEXT, "How the secret begins."),
    rotated_from=described(or_null(TEXT), "The key that this one replaces."),
    last_used_at=described(or_null(TIME), "Up to a minute old."),
)
KEY = answer(_MEMBERS_OF_KEY, description="An API key, without its secret.")
MADE_KEY = answer(
    {**_MEMBERS_OF_KEY, "secret": described(TEXT, "What clients send. It is shown in this answer only.")},
    description="A new API key.",
)

_AMOUNTS: Schema = {"usd": NUMBER, "tokens": WHOLE, "tool_calls": WHOLE}
SPENDING = answer(
    {
        "level": TEXT,
        "window": or_null(TEXT),
        "limit": {"type": "object", "properties": _AMOUNTS},
        "used": {"type": "object", "properties": _AMOUNTS},
        "renews_at": or_null(TIME),
    },
    description="What is used of a limit; `window` is the day or month in UTC, null for good. Calls that are under way "
    "count at the most they can cost.",
)
WORKSPACE = answer(
    {
        "name": TEXT,
        "object": {"type": "string", "const": "workspace"},
        "budget": {"type": ["object", "null"]},
        "disabled": {"type": "boolean"},
        "retention": or_null(
            answer({"days": WHOLE}, description="After how many days without use a session is deleted.")
        ),
        "guardrails": {"type": ["object", "null"]},
        "model": or_null(TEXT),
        "provider": or_null(TEXT),
        "tools": {"type": ["object", "null"]},
        "skills": {"type": ["object", "null"]},
        "updated_at": or_null(TIME),
        "spending": array(ref("Spending")),
    },
    description="A workspace and the rules that its administrator has set.",
)

CHANNEL = answer(
    members(Channel, "name format max_chars"),
    description="Where the answer to a turn is read.",
)
PAIRING = answer(
    members(Pairing, "id object channel identity user created_at", object={"const": "pairing"}, created_at=TIME),
    description="Who somebody of a channel is.",
)
