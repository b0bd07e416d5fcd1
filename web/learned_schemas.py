"""JSON Schemas of learned layers."""

from loom_worker.core.values.learned import FORMS, LearnedPart, LearnedVersion
from web.request_schemas import object_of
from web.schemas import FLAG, FREE, NUMBER, TEXT, WHOLE, Schema, answer, array, described, list_of, members, or_null

MOST_NOTE_CHARS, MOST_SOURCE_CHARS = 2_000, 255

NEW_LEARNED = object_of(
    {
        "content": {
            "type": ["object", "array"],
            "description": "The JSON that was saved: an object from DSPy, a list of tuned prompts from TextGrad.",
        },
        "form": {"type": "string", "enum": list(FORMS), "description": "Refuse anything else."},
        "source": {"type": "string", "maxLength": MOST_SOURCE_CHARS, "description": "Name of the file."},
        "note": {"type": "string", "maxLength": MOST_NOTE_CHARS},
    },
    required=("content",),
    description="What an optimizer has saved.",
)
ACTIVATE_LEARNED = object_of(
    {
        "version": {"type": "integer", "minimum": 0, "maximum": 1_000_000, "description": "0: no learned layer."},
        "share": {
            "type": ["number", "null"],
            "minimum": 0,
            "maximum": 1,
            "description": "Of the sessions that begin; null: all of them, and a trial is over.",
        },
    },
    required=("version",),
    description="Which version sessions begin with from now on.",
)

_COUNTS = dict.fromkeys(("turns", "completed", "failed", "incomplete", "cancelled", "judged"), WHOLE)
_SCORES = answer(
    {
        **_COUNTS,
        "mean_score": described(or_null(NUMBER), "Of judges, 0 to 1; null: none has judged."),
        "mean_tokens": described(or_null(NUMBER), "Of a turn."),
        "mean_usd": described(or_null(NUMBER), "Of a turn whose price is known."),
    },
    description="What came of the latest turns, at most 500, that ran with the version and are still stored.",
)
_VERSION = {
    **members(
        LearnedVersion,
        "object agent version form made_with digest source note created_at created_by signatures demonstrations "
        "gradients",
        object={"const": "learned_version"},
        form={"type": ["string", "null"], "enum": [*FORMS, None]},
        made_with=or_null(TEXT),
        digest=or_null(TEXT),
        source=or_null(TEXT),
        note=or_null(TEXT),
        created_at={"type": ["string", "null"], "format": "date-time"},
        created_by=or_null(TEXT),
        signatures=WHOLE,
        demonstrations=WHOLE,
        gradients=WHOLE,
    ),
    "active": described(FLAG, "It was activated, for all sessions or for the share that a trial leaves."),
    "share": described(NUMBER, "Of the sessions that begin now, 0 to 1: what their agent's file says comes first."),
}

LEARNED_REQUESTS: dict[str, Schema] = {"NewLearned": NEW_LEARNED, "ActivateLearned": ACTIVATE_LEARNED}
LEARNED_ANSWERS: dict[str, Schema] = {
    "LearnedPart": answer(
        members(
            LearnedPart,
            "version signatures demonstrations left_out_signatures left_out_demonstrations",
        ),
        description="What of a learned layer is in the system text, and for what there was no room.",
    ),
    "LearnedVersion": answer(
        {**_VERSION, "scores": _SCORES},
        description="A version of an agent's learned layer; version 0 stands for sessions without one.",
        also={
            "layer": described(FREE, "Of a single version: {signatures, demonstrations, gradients, version}."),
            "warnings": described(array(TEXT), "After an import: keys that were not imported."),
        },
    ),
    "LearnedVersionList": list_of("LearnedVersion"),
    "LearnedActivation": answer(
        {
            "object": {"const": "learned_activation"},
            "agent": TEXT,
            "version": WHOLE,
            "trial_version": or_null(WHOLE),
            "share": described(NUMBER, "Of the sessions that begin, for the trial."),
        },
        description="Which version sessions begin with; 0: none.",
    ),
}
