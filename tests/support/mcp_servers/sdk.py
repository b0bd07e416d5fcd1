"""A server on the official SDK: ``python sdk.py stdio`` or ``python sdk.py http PORT``.

What it cannot do alone it does with files of the folder FOLDER in its environment: ``gate`` (calls meet there) and
``cancelled`` (which requests it was told to forget).
"""

import asyncio
import base64
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("sdk")
folder = Path(os.environ.get("FOLDER", "."))
met: set[str] = set()
all_met = asyncio.Event()


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False, annotations=ToolAnnotations(idempotent_hint=True))
def echo(text: str, more: str | None = "none given") -> str:
    """Say it again."""
    return text if more is not None else f"{text} and null"


@server.tool()
def whole() -> dict[str, Any]:
    """Structured."""
    return {"rows": [[1, None, "ä"]], "ok": True}


@server.tool()
def fails() -> str:
    """Fail."""
    raise ToolError("the shelf is empty")


@server.tool(structured_output=False)
async def meets(name: str, others: int) -> str:
    """Answer when so many callers are here at once."""
    met.add(name)
    if len(met) == others:
        all_met.set()
    await all_met.wait()
    return name


@server.tool(structured_output=False)
async def waits() -> str:
    """Wait until told to forget it."""
    (folder / "waiting").touch()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        (folder / "cancelled").touch()
        raise
    return "never"


@server.tool(structured_output=False)
async def blocks() -> str:
    """Stop the whole server, deaf to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "blocked").write_text(str(os.getpid()))
    time.sleep(3600)
    return "never"


@server.tool(structured_output=False)
async def dies() -> str:
    """Die without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool(structured_output=False)
def pid() -> str:
    """Who it is."""
    return str(os.getpid())


@server.tool(structured_output=False)
def environment() -> str:
    """What it was given."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


@server.tool(structured_output=False)
def large(size: int) -> str:
    """So many characters."""
    return "ä" * (size // 2)


@server.tool()
def mixed() -> CallToolResult:
    """All kinds of content."""
    data = base64.b64encode(b"12345").decode()
    text = TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="inside")
    blob = BlobResourceContents(uri="file:///a.bin", mime_type="application/x", blob=data)
    link = ResourceLink(type="resource_link", uri="file:///b.txt", name="b", mime_type="text/plain")
    return CallToolResult(
        content=[
            TextContent(type="text", text="see"),
            ImageContent(type="image", data=data, mime_type="image/png"),
            AudioContent(type="audio", data=data, mime_type="audio/wav"),
            EmbeddedResource(type="resource", resource=text),
            EmbeddedResource(type="resource", resource=blob),
            link,
        ]
    )


@server.tool(structured_output=False)
async def grows(ctx: Context[Any, Any]) -> str:
    """Add a tool, and say so."""
    server.add_tool(pid, name="grown", description="New.")
    await ctx.request_context.session.send_tool_list_changed()
    return "grown"


if __name__ == "__main__":
    threading.current_thread().name = "server"
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]), json_response="json" in sys.argv)
    else:
        server.run()
