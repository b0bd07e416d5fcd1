"""One declaration of an operation: what Flask serves, who may call it, what is read, what is described."""

import pytest
from flask import Flask, Response, g, request
from flask.testing import FlaskClient
from pydantic import Field

from loom_worker.core.values.api_keys import KeyHolder
from web import problems
from web.answers import json_answer
from web.auth import require_scope
from web.bodies import Body
from web.caller import ApiCaller
from web.connection_limits import ConnectionLimiter
from web.openapi import document
from web.operation import Operation, Views, operation_of
from web.query import Query, Whole
from web.schemas import record

PARCEL = record("Parcel", "A parcel.", "weight:whole note:text?")


class NewParcelBody(Body):
    """A parcel to be sent."""

    weight: int = Field(ge=1)


class DryQuery(Query):
    """How to send it."""

    copies: Whole = Field(1, description="How often.")


class ParcelViews(Views, tag="parcels"):
    """The views under ``/v1/parcels``."""

    @Operation("POST /v1/parcels/{path:place}", {201: PARCEL}, scope="chat", problems=(409,))
    def send(self, place: str, new: NewParcelBody, how: DryQuery) -> Response:
        """Send a parcel; it is on its way."""
        return json_answer({"weight": new.weight * how.copies, "note": place}, 201)


@pytest.fixture
def client() -> FlaskClient:
    app = Flask("parcels")
    ParcelViews(None, ConnectionLimiter(slots=1)).mount(app)  # type: ignore[arg-type]

    @app.before_request
    def admit() -> None:
        g.caller = ApiCaller(KeyHolder("w", frozenset({request.headers["X-Scope"]})), "r", "t")  # type: ignore[arg-type]
        operation = operation_of(request)
        assert operation is not None
        require_scope(operation, g.caller.holder, {})
        operation.require_declared(request)

    app.register_error_handler(Exception, problems.answer)
    return app.test_client()


CHAT = {"X-Scope": "chat"}


def test_a_view_is_served_with_what_it_declares_already_read(client: FlaskClient) -> None:
    made = client.post("/v1/parcels/a/b?copies=3", json={"weight": 2}, headers=CHAT)
    assert (made.status_code, made.get_json()) == (201, {"weight": 6, "note": "a/b"})


@pytest.mark.cases(
    ("url", "body", "scope", "status"),
    [
        ("/v1/parcels/a", {"weight": 0}, "chat", 422),
        ("/v1/parcels/a?copies=x", {"weight": 1}, "chat", 400),
        ("/v1/parcels/a?copy=1", {"weight": 1}, "chat", 400),
        ("/v1/parcels/a", {"weight": 1}, "read", 403),
    ],
)
def test_what_it_does_not_declare_does_not_reach_the_view(
    client: FlaskClient, url: str, body: dict[str, int], scope: str, status: int
) -> None:
    assert client.post(url, json=body, headers={"X-Scope": scope}).status_code == status


def test_it_is_described_as_it_is_served() -> None:
    found = document(ParcelViews.operations())
    told = found["paths"]["/v1/parcels/{place}"]["post"]
    assert (told["summary"], told["tags"], told["security"]) == (
        "Send a parcel; it is on its way",
        ["parcels"],
        [{"key": ["chat"]}],
    )
    assert [each["name"] for each in told["parameters"]] == ["place", "copies"]
    assert set(told["responses"]) == {"201", "400", "401", "403", "404", "409", "413", "415", "422", "429", "503"}
    assert list(found["components"]["schemas"]) == ["Parcel", "Problem", "NewParcel"]
