"""A real HTTP API on loopback that holds every request against its OpenAPI document, read without Loom's own code.

What fits is answered with what arrived; what does not with 400 and why. Some paths misbehave on purpose.
"""

import gzip
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

FILE = Path(__file__).with_name("shop.yaml")
DOCUMENT: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
REGISTRY: Registry[Any] = Registry().with_resource("urn:shop", Resource(contents=DOCUMENT, specification=DRAFT202012))
BOMB = gzip.compress(bytes(60_000_000), 1)
Json = dict[str, Any]


@dataclass
class Api:
    """What the server saw, and what it was told to do."""

    url: str = ""
    requests: list[str] = field(default_factory=list)
    """Method and target of each request, as they came."""
    headers: list[dict[str, str]] = field(default_factory=list)
    location: str = "/products/red%20shoe?"
    """Where ``/moved`` points."""
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(*, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Api]:
    """Run the API until the block ends."""
    api = Api()
    server = ThreadingHTTPServer((host, 0), type("Handler", (_Handler,), {"api": api}))
    server.daemon_threads = False
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up are what is tested
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    api.url = f"{'https' if tls else 'http'}://{host}:{server.server_port}/v1"
    try:
        yield api
    finally:
        api.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    api: Api
    protocol_version = "HTTP/1.1"

    def _take(self) -> None:
        self.close_connection = True
        self.api.requests.append(f"{self.command} {self.path}")
        self.api.headers.append({name.lower(): value for name, value in self.headers.items()})
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        with suppress(ConnectionError, ssl.SSLError):
            if misbehave := _MISBEHAVING.get(parts.path.removeprefix("/v1")):
                misbehave(self)
            else:
                self.reply(*_held_against_the_document(self, parts.path, parts.query, body))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _take  # noqa: N815  # http.server's own names

    def reply(self, status: int, value: object, content_type: str = "application/json", **headers: str) -> None:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": content_type, **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        if status != 204:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(raw)

    def drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        while not self.api.closing.wait(0.02):
            self.wfile.write(b".")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _echo(handler: _Handler) -> None:
    handler.reply(200, {"headers": dict(handler.headers.items()), "raw": str(handler.headers)})


_MISBEHAVING: dict[str, Callable[[_Handler], object]] = {
    "/report": lambda handler: handler.reply(200, "größe,7\n".encode("latin-1"), "text/csv; charset=iso-8859-1"),
    "/image": lambda handler: handler.reply(200, b"\x89PNG....", "image/png"),
    "/echo": _echo,
    "/huge": lambda handler: handler.reply(200, b"x" * 30_000_000, "text/plain"),
    "/bomb": lambda handler: handler.reply(200, BOMB, "text/plain", Content_Encoding="gzip"),
    "/drip": lambda handler: handler.drip(),
    "/never": lambda handler: handler.api.closing.wait(),
    "/moved": lambda handler: handler.reply(302, b"", Location="/v1" + handler.api.location),
    "/away": lambda handler: handler.reply(302, b"", Location=handler.api.location),
    "/busy": lambda handler: handler.reply(429, {"error": "slow down"}, Retry_After="7"),
    "/broken": lambda handler: handler.reply(500, b"key " + handler.headers.get("X-Key", "").encode(), "text/plain"),
}


def _held_against_the_document(handler: _Handler, path: str, query: str, body: bytes) -> tuple[int, Json]:
    for template, item in DOCUMENT["paths"].items():
        names = re.findall(r"\{(\w+)\}", template)
        found = re.fullmatch("/v1" + re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(template)), path)
        if found and handler.command.lower() in item:
            operation = item[handler.command.lower()]
            filled = dict(zip(names, map(unquote, found.groups()), strict=True))
            if filled.get("sku") == "none":
                return 404, {"error": "there is no such product"}
            return _checked(operation, item, handler, filled=filled, query=query, body=body)
    return 400, {"flaws": [f"no operation at {handler.command} {path}"]}


def _checked(
    operation: Json, item: Json, handler: _Handler, *, filled: Json, query: str, body: bytes
) -> tuple[int, Json]:
    arrived: Json = {"operation": operation["operationId"]}
    flaws: list[str] = []
    pairs = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query))
    for listed in [*item.get("parameters", []), *operation.get("parameters", [])]:
        parameter = DOCUMENT["components"]["parameters"]["Limit"] if "$ref" in listed else listed
        value = _value(parameter, filled, pairs, dict(handler.headers.items()))
        if value is None:
            flaws += [f"{parameter['name']} is missing"] if parameter.get("required") else []
            continue
        flaws += _flaws(parameter["schema"], value)
        arrived[parameter["name"]] = value
    flaws += [f"unknown in the query: {name}" for name in pairs]
    content = operation.get("requestBody", {}).get("content", {})
    for media_type, media in content.items():
        flaws += [] if handler.headers["Content-Type"] == media_type else ["wrong content type"]
        arrived["body"] = json.loads(body) if "json" in media_type else parse_qs(body.decode())
        schema = {"$ref": "urn:shop#/components/schemas/Order"} if "json" in media_type else media["schema"]
        sent = {"id": 1, **arrived["body"]} if "json" in media_type else _unlisted(arrived["body"])
        flaws += _flaws(schema, sent)
    if not content and body:
        flaws.append("a body where there is none")
    if flaws:
        return 400, {"flaws": flaws}
    return (204 if handler.command == "DELETE" else 200), arrived


def _value(parameter: Json, filled: Json, pairs: dict[str, list[str]], headers: dict[str, str]) -> Any:
    name, schema = parameter["name"], parameter["schema"]
    match parameter["in"]:
        case "path":
            return _typed(filled[name], schema)
        case "header":
            return None if name == "Authorization" else headers.get(name)
        case "cookie":
            return headers.get("Cookie")
    if parameter.get("style") == "deepObject":
        inner = {key[len(name) + 1 : -1]: pairs.pop(key)[0] for key in list(pairs) if key.startswith(name + "[")}
        return {key: _typed(text, schema["properties"][key]) for key, text in inner.items()} or None
    found = pairs.pop(name, None)
    if found is None or schema["type"] != "array":
        return _typed(found[0], schema) if found else None
    pieces = found[0].split("|") if parameter.get("style") == "pipeDelimited" else found
    return [_typed(piece, schema["items"]) for piece in pieces]


def _typed(text: str, schema: Json) -> Any:
    return int(text) if schema["type"] == "integer" and re.fullmatch("-?[0-9]+", text) else text


def _unlisted(form: dict[str, list[str]]) -> Json:
    return {name: values if name == "tags" else values[0] for name, values in form.items()}


def _flaws(schema: Json, value: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema, registry=REGISTRY).iter_errors(value)]
