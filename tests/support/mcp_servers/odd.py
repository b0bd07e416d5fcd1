"""A server that breaks the protocol: ``python odd.py HOW [FOLDER]``; standard library only, so it starts at once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

HOW = sys.argv[1]
FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else Path()
OBJECT = {"type": "object"}
BAD_TOOLS: list[Any] = [
    {"name": "good", "inputSchema": OBJECT},
    {"name": "good", "inputSchema": OBJECT},
    {"name": "no schema"},
    {"name": "list", "inputSchema": []},
    {"name": "abroad", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://example.com/a"}}}},
    {"inputSchema": OBJECT},
    "not a tool",
]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    say({"jsonrpc": "2.0", "id": request["id"], "result": result})


def tools(cursor: str | None) -> dict[str, Any]:
    match HOW:
        case "bad tools":
            return {"tools": BAD_TOOLS}
        case "many tools":
            start = int(cursor or 0)
            page = [{"name": f"t{n}", "inputSchema": OBJECT} for n in range(start, start + 50)]
            return {"tools": page, "nextCursor": str(start + 50)}
    names = ("echo", "half", "huge", "flood", "leave", "deaf", "null")
    return {"tools": [{"name": name, "inputSchema": OBJECT} for name in names]}


def called(request: dict[str, Any]) -> None:
    match request["params"]["name"]:
        case "half":
            text = '{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "cut \\ud83d"}]}}'
            sys.stdout.write(text % request["id"] + "\n")
            sys.stdout.flush()
        case "huge":
            sys.stdout.write('"' + "x" * (40 * 1024 * 1024))
            sys.stdout.flush()
        case "flood":
            while True:
                say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        case "leave":
            sys.stderr.write("I must go\n")
            sys.exit(3)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()
        case "null":
            answer(request, {"content": None, "structuredContent": {"given": request["params"]["arguments"]}})
        case _:
            sys.stdout.write("not a message \udcff\n")
            answer(request, {"content": [{"type": "text", "text": "said"}]})


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                version = "1999-01-01" if HOW == "old" else request["params"]["protocolVersion"]
                info = {"name": "odd", "version": "1"}
                answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list":
                answer(request, tools((request.get("params") or {}).get("cursor")))
            case "tools/call":
                called(request)
            case "ping":
                answer(request, {})


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    if HOW == "family":  # a wrapper, as npx is one: it starts the server, and neither of them heeds SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        script = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
        child = subprocess.Popen((sys.executable, "-S", "-c", script), stdin=subprocess.DEVNULL)
        (FOLDER / "pids").write_text(f"{os.getpid()} {child.pid}")
        serve()
        signal.pause()
    else:
        serve()
