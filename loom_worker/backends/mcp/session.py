"""One conversation with a server: opened once, used by many calls at a time, over for good when it ends.

No class of the SDK leaves this folder: what a call gave becomes values here.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from loom_worker import __version__
from loom_worker.core.errors import LoomError, ToolFailed
from loom_worker.core.values.json import Json
from loom_worker.core.values.media import IMAGES

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp.shared.exceptions import MCPError
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher


MAX_RESULT_BYTES = 10_000_000
"""Bytes of a result in UTF-8; more is cut."""
MAX_IMAGE_CHARS = 7_000_000
"""Characters of an image in base64; most providers take no longer one."""


def value(result: Mapping[str, Any]) -> object:
    """Text, or a JSON value, from a CallToolResult as JSON.

    Structured content is the result; the text next to it says the same. Images that models take stay, as ``data:``
    URLs. Other bytes are not for a model: only their kind and number stay.

    Raises:
        ToolFailed: the tool says that it failed.
    """
    content = result.get("content")
    parts = [_part(block) for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if result.get("isError"):
        told = [part for part in parts if isinstance(part, str) or "url" not in part]
        raise ToolFailed(_text(told) or "the server says that it failed, and not why")
    if result.get("structuredContent") is not None:
        return _bounded(_with_bytes(result["structuredContent"], parts))
    texts = [part if isinstance(part, str) else part.get("url") for part in parts]
    if None not in texts:
        return cut("\n".join(map(str, texts)))
    return _bounded([{"type": "text", "text": part} if isinstance(part, str) else part for part in parts])


def cut(text: str) -> str:
    """At most MAX_RESULT_BYTES of it, between two characters; its end then says how long it was."""
    if len(text) * 4 <= MAX_RESULT_BYTES or (size := len(text.encode("utf-8", "replace"))) <= MAX_RESULT_BYTES:
        return text
    kept = text.encode("utf-8", "replace")[:MAX_RESULT_BYTES].decode("utf-8", "ignore")
    return f"{kept}\n[cut: the first {MAX_RESULT_BYTES} of {size} bytes]"


def _part(block: Json) -> str | Json:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return _bytes(kind, block.get("mimeType"), data)
        case {"type": "resource", "resource": {"text": str(text), **about}}:
            return {"type": "resource", "uri": about.get("uri"), "mime_type": about.get("mimeType"), "text": text}
        case {"type": "resource", "resource": {"blob": str(data), **about}}:
            return {**_bytes("resource", about.get("mimeType"), data), "uri": about.get("uri")}
        case {"type": "resource_link"}:
            names = {"name": "name", "title": "title", "description": "description", "mimeType": "mime_type"}
            known = {ours: block[theirs] for theirs, ours in names.items() if block.get(theirs) is not None}
            return {"type": "resource_link", "uri": block.get("uri"), **known}
        case _:
            return {"type": str(block.get("type", "unknown"))}


def _bytes(kind: str, mime_type: object, data: str) -> Json:
    """An image, or how many bytes the base64 text stands for, without decoding it."""
    image = str(mime_type).lower().replace("/jpg", "/jpeg")
    if image in IMAGES and len(data) <= MAX_IMAGE_CHARS:
        return {"type": "image", "url": f"data:{image};base64,{''.join(data.split())}"}
    return {"type": kind, "mime_type": mime_type, "bytes": len(data) * 3 // 4 - data[-2:].count("=")}


def _with_bytes(structured: object, parts: Sequence[str | Json]) -> object:
    others = [part for part in parts if not isinstance(part, str)]
    return {"structured": structured, "content": others} if others else structured


def _bounded(found: object) -> object:
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    whole = cut(text)
    return found if whole is text else whole


def _text(parts: Sequence[str | Json]) -> str:
    return cut("\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts)).strip()


CODE = -32099
"""Code of errors that we answer ourselves in the server's stead; the last of those JSON-RPC leaves to
implementations."""
EXPIRED, UNREACHABLE, REFUSED = "expired", "unreachable", "refused"


class Lost(Exception):
    """The session is over; str() says why."""


class Expired(Lost):
    """The server refused a request (HTTP 4xx), mostly since it forgot the session: a new one may ask again, once.

    Its argument is the ToolFailed to raise if that is refused as well.
    """


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, which is what the SDK's task groups raise; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def said(error: BaseException) -> str:
    """What an error says, or at least what it is."""
    first = next(leaves(error))
    return str(first).split("\n")[0] or type(first).__name__


T = TypeVar("T")

PING_S = 1.0
"""A server that has let a call time out must answer a ping within this."""
MAX_PAGES = 20
"""Pages that are read of a list of tools."""


class Transport(Protocol):
    """How a server is reached: StdioTransport, HttpTransport."""

    @property
    def exit_reason(self) -> str:
        """How it ended, as what follows "it"."""

    def kill(self, why: str) -> None:
        """End it at once."""

    def streams(self, over: asyncio.Event) -> AbstractAsyncContextManager[tuple[Any, Any]]:
        """Reach it; ``over`` is set when it is seen to end."""


class McpSession:
    """Lives in a task of its own: the SDK wants its contexts left by the task that entered them."""

    def __init__(self, transport: Transport, *, changed: Callable[[], None]) -> None:
        """Args: changed: called when the server says that its tools are others now."""
        self._transport = transport
        self._changed = changed
        self._over = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._client: ClientSession | None = None
        self._dispatcher: JSONRPCDispatcher | None = None
        self._life: asyncio.Task[None] | None = None
        self.is_wanted = True
        """False once it is ended on purpose."""

    @property
    def is_open(self) -> bool:
        """True while it can be asked."""
        return self._client is not None and not self._over.is_set()

    @property
    def exit_reason(self) -> str:
        """How it ended."""
        return f"it {self._transport.exit_reason}"

    @property
    def under_way(self) -> int:
        """Requests that wait for their answers."""
        return len(self._tasks)

    async def open(self, timeout_s: float) -> None:
        """Reach the server and greet it.

        Raises:
            ToolFailed: it could not be (UNAVAILABLE).
        """
        self._life = asyncio.create_task(self._live())
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._opened)
        except TimeoutError as error:
            self._transport.kill("did not say hello in time")
            await self.close()
            raise ToolFailed(f"it did not answer within {timeout_s:g} s of its start", "UNAVAILABLE") from error

    async def close(self) -> None:
        """End it and whatever runs for it; calls that are under way fail."""
        self.is_wanted = False
        self._over.set()
        if self._life is not None:
            if not self._opened.done():
                self._life.cancel()
            await asyncio.wait({self._life})

    async def ended(self) -> None:
        """Wait until it is over, by whomever."""
        if self._life is not None:
            await asyncio.wait({self._life})

    async def retire(self) -> None:
        """Close it once the requests that are under way have their answers."""
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            await self.close()

    def kill(self, why: str) -> None:
        """End it at once, since the server does not do its part."""
        self._transport.kill(why)
        self._over.set()

    async def call(self, tool: str, arguments: Json) -> Json:
        """Call a tool; returns a CallToolResult as JSON.

        Cancelling this cancels the request on the server, too, without waiting for it.

        Raises:
            Lost: the session ended, or had ended.
            ToolFailed: the server refuses the request.
        """
        return await self._ask("tools/call", {"name": tool, "arguments": arguments})

    async def tools(self) -> list[object]:
        """Ask for all tools, as the server sends them; raises what ``call`` raises."""
        found: list[object] = []
        params: Json = {}
        for _ in range(MAX_PAGES):
            page = await self._ask("tools/list", params)
            tools, cursor = page.get("tools"), page.get("nextCursor")
            if not isinstance(tools, list):
                raise ToolFailed("it answers the question for its tools with something else", "UNAVAILABLE")
            found += tools
            if not isinstance(cursor, str):
                break
            params = {"cursor": cursor}
        return found

    async def answers(self) -> bool:
        """True if it answers a ping in time."""
        if self._client is None:
            return False
        with contextlib.suppress(TimeoutError, Lost):
            async with asyncio.timeout(PING_S):
                with contextlib.suppress(ToolFailed):  # an error is an answer
                    await self._within(_ping(self._client))
                return True
        return False

    async def _live(self) -> None:
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp_types import Implementation

        info = Implementation(name="loom", version=__version__)
        try:
            async with self._transport.streams(self._over) as (reading, writing):
                self._dispatcher = JSONRPCDispatcher(reading, writing)
                async with ClientSession(
                    dispatcher=self._dispatcher, message_handler=self._on_message, client_info=info
                ) as client:
                    await self._greet(client)
                    self._client = client
                    self._opened.set_result(None)
                    await self._over.wait()
        except Exception as error:  # the top of a task: its callers get whatever ends the session
            self._fail(error)
        finally:
            self._over.set()
            self._fail(Lost(self.exit_reason))

    def _fail(self, error: Exception) -> None:
        if not self._opened.done():
            self._opened.set_exception(ToolFailed(self._why_not(error), "UNAVAILABLE"))
            self._opened.exception()  # the opener may have gone by now

    def _why_not(self, error: Exception) -> str:
        first = next(leaves(error))
        if isinstance(first, LoomError | OSError | Lost) or _data(first):
            return str(first)
        if _is_closed(first):
            return self.exit_reason
        return f"it does not speak the protocol as it should: {said(first)}"

    async def _greet(self, client: "ClientSession") -> None:
        """Nearly every server knows ``initialize``; those of 2026 and later that do not say so."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

        try:
            await client.initialize()
        except MCPError as error:
            if error.code not in (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION):
                raise
            await client.discover()

    async def _on_message(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed()

    async def _ask(self, method: str, params: Json) -> Json:
        """Ask without the SDK's check of the answer, in which one bad tool spoils the whole list."""
        if self._client is None or self._dispatcher is None or self._over.is_set():
            raise Lost(self.exit_reason)
        if self._client.initialize_result is not None:
            return await self._within(self._dispatcher.send_raw_request(method, params))
        return await self._within(_modern(self._client, method, params))

    async def _within(self, work: Coroutine[Any, Any, T]) -> T:
        from mcp.shared.exceptions import MCPError

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except MCPError as error:
            raise self._meant(error) from error
        except ValueError as error:  # pydantic's, of a server of 2026
            raise ToolFailed(f"its answer is not one of the protocol: {said(error)}", "UNAVAILABLE") from error
        finally:
            task.cancel()  # what it still says to the server may take seconds that nobody has

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()

    def _meant(self, error: "MCPError") -> Exception:
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS

        kind = _data(error)
        code = "UNAVAILABLE" if kind and error.code == CODE else None
        code = "INVALID_INPUT" if error.code == INVALID_PARAMS else code
        failed = ToolFailed(str(error) or f"it answers with error {error.code}", code)
        if kind == EXPIRED:
            return Expired(failed)
        if kind == UNREACHABLE:
            self.kill(str(error).removeprefix("it "))
            return Lost(str(error))
        if _is_closed(error):
            return Lost(self.exit_reason)
        if error.code == CONNECTION_CLOSED and str(error).startswith("SSE stream"):  # the SDK's words, not a server's
            return ToolFailed(f"it broke off its answer ({error})", "UNAVAILABLE")
        return failed


def _is_closed(error: BaseException) -> bool:
    """True if the whole connection ended; the code alone does not say so, servers use -32000 for anything."""
    from mcp_types import CONNECTION_CLOSED

    return getattr(error, "code", None) == CONNECTION_CLOSED and str(error) == "Connection closed"


def _data(error: BaseException) -> str | None:
    data = getattr(error, "data", None)
    return data.get("loom") if isinstance(data, dict) and isinstance(data.get("loom"), str) else None


async def _ping(client: "ClientSession") -> None:
    if client.initialize_result is not None:
        await client.send_ping()
    else:  # servers of 2026 know no ping
        await client.send_discover(client.protocol_version or "")


async def _modern(client: "ClientSession", method: str, params: Json) -> Json:
    """Ask a server of 2026 and later, whose requests carry more than their params."""
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, PaginatedRequestParams

    if method == "tools/list":
        listed = await client.list_tools(params=PaginatedRequestParams(**params))
        return listed.model_dump(mode="json", by_alias=True, exclude_none=True)
    request = CallToolRequest(params=CallToolRequestParams(**params))
    called = await client.send_request(request, CallToolResult)
    return called.model_dump(mode="json", by_alias=True, exclude_unset=True)
