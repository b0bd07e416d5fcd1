"""JSON Schemas of what judges made of an answer."""

from loom_worker.core.values.judges import CRITICALITIES, JUDGE_TYPES
from web.schemas import FLAG, NUMBER, TEXT, WHOLE, Schema, answer, array, described, or_null

_SCORE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
VERDICT = answer(
    {
        "name": TEXT,
        "type": {"type": "string", "enum": list(JUDGE_TYPES)},
        "status": {"type": "string", "enum": ["scored", "dead"]},
        "score": _SCORE,
        "passed": or_null(FLAG),
        "critique": described(or_null(TEXT), "What the answer lacks."),
        "error": described(or_null(TEXT), "Why the judge gave no score."),
        "criticality": {"type": "string", "enum": list(CRITICALITIES)},
        "weight": NUMBER,
        "model": described(or_null(TEXT), "The model that was asked."),
        "cost_usd": or_null(NUMBER),
        "duration_ms": or_null(WHOLE),
    },
    description="What one judge said of an answer.",
)
JUDGE: Schema = {
    "anyOf": [
        answer(
            {
                "score": described(_SCORE, "Of all judges, by the strategy; null: nobody could say anything."),
                "passed": or_null(FLAG),
                "attempts": described(WHOLE, "Answers that were judged."),
                "verdicts": array(VERDICT),
            },
            description="What judges made of the latest answer that all of them have looked at.",
        ),
        {"type": "null"},
    ]
}
