"""Learned layers of agents: imported, listed, looked at, activated and taken back."""

from typing import Annotated, Any

from flask import Response
from pydantic import Field

from loom_worker.core.errors import NotFound
from loom_worker.core.values.json import Json
from loom_worker.core.values.learned import FORMS, Form, ImportRequest, LearnedPart, LearnedVersion
from loom_worker.core.values.pages import no_cursor
from web.answers import json_answer, known_id, list_answer
from web.bodies import WHOLE_NUMBER, Body, EmptyBody
from web.caller import caller
from web.check import ABSENT, Given, any_of
from web.operation import NO_CONTENT, Operation, Views
from web.query import PageQuery
from web.schemas import TEXT, WHOLE, list_of, nullable, one_of, record

_MOST_LISTED = 100
"""Each of them is scored by its turns."""
_MOST_DIGITS = 9
_PATH = "/v1/agents/{name}/learned"


class NewLearnedBody(Body):
    """What an optimizer has saved."""

    content: Annotated[Any, Given(any_of(object=Json, array=list[Any]))] = Field(
        description="The JSON that was saved: an object from DSPy, a list of tuned prompts from TextGrad."
    )
    form: Form = Field(ABSENT, description="Refuse anything else.")
    source: str = Field(ABSENT, max_length=255, description="Name of the file.")
    note: str = Field(ABSENT, max_length=2_000)


class ActivateLearnedBody(Body):
    """Which version sessions begin with from now on."""

    version: Annotated[int, Field(ge=0, le=1_000_000), WHOLE_NUMBER] = Field(description="0: no learned layer.")
    share: float | None = Field(
        None, ge=0, le=1, description="Of the sessions that begin; null: all of them, and a trial is over."
    )


_SCORES = record(
    "",
    "What came of the latest turns, at most 500, that ran with the version and are still stored.",
    mean_score="number? Of judges, 0 to 1; null: none has judged.",
    mean_tokens="number? Of a turn.",
    mean_usd="number? Of a turn whose price is known.",
    **dict.fromkeys(("turns", "completed", "failed", "incomplete", "cancelled", "judged"), WHOLE),
)
LEARNED_VERSION = record(
    "LearnedVersion",
    "A version of an agent's learned layer; version 0 stands for sessions without one.",
    "object=learned_version agent version form made_with digest source note created_at:time? created_by signatures "
    "demonstrations gradients",
    LearnedVersion,
    also={
        "layer": "free Of a single version: {signatures, demonstrations, gradients, version}.",
        "warnings": "text[] After an import: keys that were not imported.",
    },
    form=nullable(one_of(FORMS)),
    active="flag It was activated, for all sessions or for the share that a trial leaves.",
    share="number Of the sessions that begin now, 0 to 1: what their agent's file says comes first.",
    scores=_SCORES,
    **dict.fromkeys(("made_with", "digest", "source", "note", "created_by"), nullable(TEXT)),
    **dict.fromkeys(("signatures", "demonstrations", "gradients"), WHOLE),
)
LEARNED_PART = record(
    "LearnedPart",
    "What of a learned layer is in the system text, and for what there was no room.",
    "version signatures demonstrations left_out_signatures left_out_demonstrations",
    LearnedPart,
)
LEARNED_ACTIVATION = record(
    "LearnedActivation",
    "Which version sessions begin with; 0: none.",
    "object=learned_activation agent:text version:whole trial_version:whole?",
    share="number Of the sessions that begin, for the trial.",
)


class LearnedViews(Views, tag="catalog"):
    """The views under ``/v1/agents/{name}/learned``."""

    @Operation(f"GET {_PATH}", list_of(LEARNED_VERSION))
    def list(self, name: str, page: PageQuery) -> Response:
        """List the versions of an agent's learned layer, the newest first, with what came of each."""
        if page.after is not None and not _is_version(page.after):
            raise no_cursor(page.after)
        before, limit = None if page.after is None else int(page.after), min(page.limit, _MOST_LISTED)
        known = known_id(name, "agent")
        found, has_more = self.service.learned.listed(caller().tenant, known, limit=limit, before=before)
        return list_answer(found, after=str(found[-1]["version"]) if has_more else None)

    @Operation(f"POST {_PATH}", {200: LEARNED_VERSION, 201: LEARNED_VERSION}, scope="admin", problems=(409,))
    def add(self, name: str, new: NewLearnedBody) -> Response:
        """Import what DSPy or TextGrad has saved as the next version; 200 if it is there already."""
        asked = ImportRequest(new.content, new.form, new.source or "", new.note or "")
        known, by = known_id(name, "agent"), caller().holder.actor
        version, is_known = self.service.learned.add(caller().tenant, known, asked, by=by)
        return json_answer(version, 200 if is_known else 201)

    @Operation(f"GET {_PATH}/{{version}}", LEARNED_VERSION)
    def get(self, name: str, version: str) -> Response:
        """Look at one version and its layer."""
        return json_answer(self.service.learned.get(caller().tenant, known_id(name, "agent"), _number(version)))

    @Operation(f"DELETE {_PATH}/{{version}}", NO_CONTENT, scope="admin", problems=(409,))
    def erase(self, name: str, version: str) -> Response:
        """Remove what a version holds; its number and its scores stay."""
        known, by = known_id(name, "agent"), caller().holder.actor
        self.service.learned.erase(caller().tenant, known, _number(version), by=by)
        return Response(status=204)

    @Operation(f"POST {_PATH}/activate", LEARNED_ACTIVATION, scope="admin")
    def activate(self, name: str, asked: ActivateLearnedBody) -> Response:
        """Give a version to the sessions that begin, or to a share of them."""
        known, by = known_id(name, "agent"), caller().holder.actor
        return json_answer(
            self.service.learned.activate(caller().tenant, known, asked.version, share=asked.share, by=by)
        )

    @Operation(f"POST {_PATH}/rollback", LEARNED_ACTIVATION, scope="admin", problems=(409,))
    def roll_back(self, name: str, _body: EmptyBody) -> Response:
        """Take the last activation back: the version before it is active again."""
        known, by = known_id(name, "agent"), caller().holder.actor
        return json_answer(self.service.learned.roll_back(caller().tenant, known, by=by))


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _number(version: str) -> int:
    if not _is_version(version):
        raise NotFound("no such version")
    return int(version)
