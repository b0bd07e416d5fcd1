from collections.abc import Callable

import pytest
from flask.testing import FlaskClient

from tests.support.web_stage import MakeStage, WebStage
from web.app import create_app
from web.auth import is_loopback

ClientOf = Callable[..., FlaskClient]
"""A client of an application with these settings of the web."""
KEYS = {"key-a": "alpha", "schlüssel-b": "beta"}


@pytest.fixture
def client_of(make_stage: MakeStage) -> ClientOf:
    return lambda **web: create_app(make_stage(**web).service).test_client()


@pytest.fixture
def keyed(client_of: ClientOf) -> FlaskClient:
    return client_of(api_keys=KEYS)


def bearer(key: str) -> dict[str, str]:
    """WSGI carries header bytes as latin-1."""
    return {"Authorization": "Bearer " + key.encode().decode("latin-1")}


@pytest.mark.cases(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer nope", "Basic a2V5LWE=", "key-a", "Bearer key-a,key-a", "Bearer é"],
)
def test_without_a_known_key_nobody_is_served(keyed: FlaskClient, authorization: str | None) -> None:
    answer = keyed.get("/v1/sessions", headers={} if authorization is None else {"Authorization": authorization})
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert answer.mimetype == "application/problem+json"


@pytest.mark.parametrize("authorization", ["Bearer key-a", "bearer key-a", "BEARER  key-a "])
def test_a_known_key_opens_its_workspace(keyed: FlaskClient, authorization: str) -> None:
    assert keyed.get("/v1/sessions", headers={"Authorization": authorization}).status_code == 200


def test_workspaces_do_not_see_each_other(keyed: FlaskClient) -> None:
    made = keyed.post("/v1/sessions/s1/turns", json={"input": "x"}, headers=bearer("key-a")).get_json()
    for path in ("/v1/sessions/s1", f"/v1/turns/{made['id']}", f"/v1/turns/{made['id']}/events"):
        assert keyed.get(path, headers=bearer("schlüssel-b")).status_code == 404
        assert keyed.get(path, headers=bearer("key-a")).status_code == 200
    assert keyed.get("/v1/turns", headers=bearer("schlüssel-b")).get_json()["data"] == []


def test_an_unknown_path_is_not_told_to_strangers(keyed: FlaskClient) -> None:
    assert keyed.get("/v1/nowhere").status_code == 401
    assert keyed.get("/v1/nowhere", headers=bearer("key-a")).status_code == 404


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/docs", "/openapi.json"])
def test_probes_and_pages_need_no_key(keyed: FlaskClient, stage: WebStage, path: str) -> None:
    stage.bring_worker()
    assert keyed.get(path).status_code == 200


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.2", "8.8.8.8", "::ffff:8.8.8.8", "", "fe80::1"])
def test_without_keys_other_machines_are_refused(client: FlaskClient, address: str) -> None:
    answer = client.get("/v1/sessions", environ_overrides={"REMOTE_ADDR": address})
    assert answer.status_code == 403
    assert client.get("/healthz", environ_overrides={"REMOTE_ADDR": address}).status_code == 200


@pytest.mark.cases(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.com",
        "[::1].evil.com",
        "[::1]evil.com:8000",
        "[::1]:8000:evil.com",
        "evil@localhost",
        "localhost,evil.example",
        "10.0.0.7",
        "",
        "[::2]",
    ],
)
def test_without_keys_a_rebound_name_is_refused(client: FlaskClient, host: str) -> None:
    for path in ("/v1/sessions", "/", "/docs"):
        assert client.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.8.9.1:8000", "[::1]:8000", "[::1]"])
def test_without_keys_this_machine_is_served_by_any_of_its_names(client: FlaskClient, host: str) -> None:
    assert client.get("/v1/sessions", headers={"Host": host}).status_code == 200


@pytest.mark.cases("proxies", [0, 1, 2])
@pytest.mark.cases(
    ("header", "value"),
    [
        ("X-Forwarded-For", "8.8.8.8"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-For", "127.0.0.1, 127.0.0.1"),
        ("X-Forwarded-Host", "localhost"),
        ("X-Forwarded-Proto", "https"),
        ("X-Real-IP", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
    ],
)
def test_without_keys_nobody_is_served_through_a_proxy(
    client_of: ClientOf, proxies: int, header: str, value: str
) -> None:
    client = client_of(trusted_proxies=proxies)
    for address in ("127.0.0.1", "10.0.0.7"):
        answer = client.get("/v1/sessions", headers={header: value}, environ_overrides={"REMOTE_ADDR": address})
        assert answer.status_code == 403
        assert client.get("/metrics", headers={header: value}).status_code == 403


def test_without_keys_the_address_of_the_socket_counts_whatever_a_proxy_may_say(client_of: ClientOf) -> None:
    proxied = client_of(trusted_proxies=1)
    assert proxied.get("/v1/sessions").status_code == 200
    assert proxied.get("/v1/sessions", environ_overrides={"REMOTE_ADDR": "10.0.0.7"}).status_code == 403


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7"])
def test_metrics_behind_a_proxy_need_a_key_whoever_the_client_says_it_is(client_of: ClientOf, address: str) -> None:
    proxied = client_of(trusted_proxies=1, api_keys=KEYS)
    forged = {"X-Forwarded-For": "127.0.0.1"}
    assert proxied.get("/metrics", headers=forged, environ_overrides={"REMOTE_ADDR": address}).status_code == 401
    assert proxied.get("/metrics", headers={**forged, **bearer("key-a")}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:9999"])
def test_a_foreign_page_changes_nothing(client: FlaskClient, stage: WebStage, origin: str) -> None:
    answer = client.post("/v1/sessions", json={}, headers={"Origin": origin})
    assert answer.status_code == 403
    assert stage.count() == 0
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_our_own_page_may_change_things(client: FlaskClient) -> None:
    assert client.post("/v1/sessions", json={}, headers={"Origin": "http://localhost"}).status_code == 201


@pytest.mark.parametrize(
    ("name", "is_local"), [("::ffff:127.0.0.1", True), ("127.0.0.1.evil", False), ("0.0.0.0", False)]
)
def test_loopback_is_decided_by_address_not_by_look(name: str, is_local: bool) -> None:
    assert is_loopback(name) is is_local


SITE = "https://app.example.com"


def test_a_page_of_a_known_origin_may_ask_send_and_read_and_no_other_page(client_of: ClientOf) -> None:
    client = client_of(api_keys=KEYS, cors_origins=(SITE,))
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    allowed = client.options("/v1/sessions/s1/turns", headers={"Origin": SITE, **asks})
    assert (allowed.status_code, allowed.headers["Access-Control-Allow-Origin"]) == (204, SITE)
    assert {"POST", "DELETE"} <= set(allowed.headers["Access-Control-Allow-Methods"].split(", "))
    assert "authorization" in allowed.headers["Access-Control-Allow-Headers"]
    for headers, status in ((bearer("key-a"), 202), ({}, 401)):
        sent = client.post("/v1/sessions/s1/turns", json={"input": "x"}, headers={"Origin": SITE, **headers})
        assert (sent.status_code, sent.headers["Access-Control-Allow-Origin"]) == (status, SITE)
        assert "Location" in sent.headers["Access-Control-Expose-Headers"]
        assert "Origin" in sent.headers["Vary"]
    for origin in ("https://app.example.com.evil.org", "null", "http://app.example.com"):
        refused = client.options("/v1/sessions", headers={"Origin": origin, **asks})
        assert (refused.status_code, "Access-Control-Allow-Origin" in refused.headers) == (401, False)


def test_without_keys_a_page_of_a_known_origin_may_change_things(client_of: ClientOf) -> None:
    client = client_of(cors_origins=("http://localhost:3000",))
    statuses = [
        client.post("/v1/sessions", json={}, headers={"Origin": origin}).status_code
        for origin in ("http://localhost:3000", "http://localhost:3001")
    ]
    assert statuses == [201, 403]


@pytest.mark.cases(
    "path, nearest",
    [
        ("/v1/session", "/v1/sessions"),
        ("/v1/sessions/", "/v1/sessions"),
        ("/v1/sessions/s1/turn", "/v1/sessions/s1/turns"),
        ("/sessions/s1/turns", "/v1/sessions/s1/turns"),
        ("/v1/turn/turn_1/events", "/v1/turns/turn_1/events"),
        ("/heathz", "/healthz"),
        ("/" + "x" * 100_000, None),
    ],
)
def test_an_unknown_path_names_the_nearest_one(client: FlaskClient, path: str, nearest: str | None) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.mimetype) == (404, "application/problem+json")
    assert answer.get_json().get("nearest") == nearest
