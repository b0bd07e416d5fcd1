"""An API as tools: one for each operation that its document and the agent's file agree on."""

import difflib
import functools
import re
import socket
from dataclasses import replace
from pathlib import Path

from loom_worker.backends.rest import client, document, openapi
from loom_worker.backends.rest.client import MAX_ANSWER_BYTES, RestClient, retry_advice
from loom_worker.backends.rest.request import question
from loom_worker.core.errors import BadFile, BadSettings, Invalid, ToolFailed
from loom_worker.core.text import one_line
from loom_worker.core.values.agents import Backend
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tools import MAX_SHOWN, Caller, Tool
from loom_worker.guard.net.address import Lookup, Private, Target, target

MAX_DESCRIPTION_CHARS = 12_000
"""Length of the operations' lines in the system prompt; those beyond it are only named, or counted if they are many."""
MAX_OPERATIONS = 1_000
"""Tools of one backend; checking the schemas of so many takes some seconds."""
IDEMPOTENT = (*openapi.READING, "PUT", "DELETE")
"""RFC 9110, 9.2.2: done twice, they leave what once leaves."""
_BUSY = (408, 425, 429)
"""Failures of the moment, though their status says that the question is at fault."""


class RestBackend:
    """The tools over one API; nothing is sent before one of them is called, and any thread may call them."""

    def __init__(
        self,
        backend: Backend,
        *,
        secret: str | None,
        folder: Path,
        timeout_s: float,
        lookup: Lookup = socket.getaddrinfo,
    ) -> None:
        """Read the OpenAPI document and make its operations tools.

        Args:
            secret: what ``backend.auth`` names.
            folder: where a relative path of the document begins.
            timeout_s: of one call, all of it.

        Raises:
            BadFile: the document cannot be used; the text names file and place.
            BadSettings: URL, secret or names of operations cannot be used.
        """
        if not backend.openapi or "://" in backend.openapi:
            raise BadSettings("a rest backend needs openapi: the path of its OpenAPI document")
        read = document.read(folder / backend.openapi)
        base = _base(backend, read)
        self._prefix = base.path.rstrip("/")
        self._mask = client.secret_mask(backend.auth, secret)
        self._client = RestClient(
            base,
            client.auth_headers(backend.auth, secret),
            timeout_s,
            allow_private=backend.allow_private,
            lookup=lookup,
        )
        if self._client.headers and base.scheme == "http" and not backend.allow_private:
            raise BadSettings(f"{base.origin}: a secret does not go out unencrypted; use https")
        self._title = _title(read)
        withheld = {name.lower() for name in self._client.headers}
        made, problems = list[openapi.Operation](), list[str]()
        for entry in _chosen(openapi.listed(read), backend.operations):
            try:
                made.append(openapi.operation(read, entry, withheld=withheld))
            except BadFile as error:
                if backend.operations is not None:
                    raise
                problems.append(f"{error}; {one_line(entry.id, 100)!r} is left out")
        self._operations, self.problems = tuple(made), tuple(problems)

    def check(self) -> None:
        """Nothing is left to look for: its document was read when it was made."""

    def tools(self) -> tuple[Tool, ...]:
        """One for each operation, by name; each waits two seconds longer than the call's own limit."""
        return tuple(self._tool(operation) for operation in self._operations)

    def describe(self) -> str:
        """The operations for the system prompt, a line for each; the same bytes for the same document."""
        are_many = len(self._operations) > MAX_SHOWN
        how = "; more_tools finds them by words and gets them by name" if are_many else ""
        lines = [f"{self._title}. Its operations are tools{how}:"]
        room = MAX_DESCRIPTION_CHARS
        for place, operation in enumerate(self._operations):
            line = _line(operation)
            room -= len(line) + 1
            if room < 0:
                others = self._operations[place:]
                rest = str(len(others)) if are_many else ", ".join(each.name for each in others)
                return "\n".join([*lines, f"Further operations: {rest}"])
            lines.append(line)
        return "\n".join(lines)

    def close(self) -> None:
        """There is nothing to close: every call has a connection of its own."""

    def _tool(self, operation: openapi.Operation) -> Tool:
        is_reading = operation.method in openapi.READING
        description = f"{operation.summary} ({operation.method} {one_line(operation.path)})".strip()
        return Tool(
            ToolSpec(operation.name, description, operation.input_schema),
            functools.partial(self._call, operation),
            is_idempotent=operation.method in IDEMPOTENT,
            is_read_only=is_reading,
            is_repeatable=is_reading,
            needs_approval=operation.needs_approval,
            timeout_s=self._client.timeout_s + 2,
            group=f"rest:{self._client.base.host}",
            occasion="many",
        )

    def _call(self, operation: openapi.Operation, arguments: Json, caller: Caller) -> object:
        asked = question(operation, arguments, prefix=self._prefix)
        if caller.traceparent is not None:
            asked = replace(asked, headers={**asked.headers, "traceparent": caller.traceparent})
        try:
            answered = self._client.ask(asked)
        except ToolFailed as failed:  # a redirect's target may repeat the secret
            raise ToolFailed(self._mask.text(str(failed)), failed.code) from None
        if 200 <= answered.status < 300:
            return client.read_answer(answered, method=operation.method, mask=self._mask, max_bytes=MAX_ANSWER_BYTES)
        reason = client.failure_text(answered, mask=self._mask, max_bytes=MAX_ANSWER_BYTES)
        text = f"HTTP {answered.status}{retry_advice(answered)}" + (f": {reason}" if reason else "")
        raise ToolFailed(text, _code(answered.status))


def _base(backend: Backend, read: document.OpenApiFile) -> Target:
    url = backend.url or _server(read)
    if url is None:
        raise BadSettings(f"{read.file}: no server with an https URL; the agent's backend needs a url")
    if "?" in url or "#" in url:
        raise BadSettings("the url of a rest backend must have neither ? nor #")
    try:
        return target(url, allow_private=backend.allow_private)
    except Invalid as error:
        hint = " (allow_private: true opens private ones)" if isinstance(error, Private) else ""
        raise BadSettings(f"the url of the rest backend: {error}{hint}") from error


def _server(read: document.OpenApiFile) -> str | None:
    """The document's first server with an absolute https URL, its variables at their defaults."""
    for node, place in read.entries(read.root.get("servers"), "#/servers"):
        server, _ = read.mapping(node, place)
        variables, _ = read.mapping(server.get("variables") or {}, f"{place}/variables")
        url = str(server.get("url"))
        for name, variable in variables.items():
            default = variable.get("default", "") if isinstance(variable, dict) else ""
            url = url.replace("{" + str(name) + "}", str(default))
        if re.match(r"https://", url):
            return url
    return None


def _title(read: document.OpenApiFile) -> str:
    info, _ = read.mapping(read.root.get("info") or {}, "#/info")
    return f"REST API {one_line(str(info.get('title') or ''), 100)}".strip()


def _chosen(
    listed: tuple[openapi.ListedOperation, ...], names: tuple[str, ...] | None
) -> list[openapi.ListedOperation]:
    """The operations that are named, or all that only read; by name.

    Raises:
        BadSettings: a name is unknown, or there are too many.
    """
    by_name = {entry.name: entry for entry in listed} | {entry.id: entry for entry in listed}
    if unknown := [name for name in names or () if name not in by_name]:
        likely = ", ".join(difflib.get_close_matches(unknown[0], by_name, n=5, cutoff=0.3)) or "none is alike"
        fault = next((f" ({entry.fault})" for entry in listed if entry.fault), "")  # may hide it
        raise BadSettings(f"the API has no operation {unknown[0][:100]!r}; the nearest: {likely}{fault}")
    chosen = [entry for entry in listed if entry.is_reading] if names is None else [by_name[name] for name in names]
    if len(chosen) > MAX_OPERATIONS:
        raise BadSettings(f"{len(chosen)} operations, at most {MAX_OPERATIONS} become tools: name them in operations")
    return sorted({entry.name: entry for entry in chosen}.values(), key=lambda entry: entry.name)


def _line(operation: openapi.Operation) -> str:
    required = operation.input_schema.get("required", [])
    names = [name if name in required else f"{name}?" for name in operation.input_schema["properties"]]
    head = f"{operation.name}({', '.join(names)})"
    return f"{head[:300]}: {operation.summary[:150]}" if operation.summary else head[:300]


def _code(status: int) -> str:
    if status in (404, 410):
        return "ERROR_NOT_FOUND"
    return "INVALID_INPUT" if 400 <= status < 500 and status not in _BUSY else "UNAVAILABLE"
