"""Make the home of a Loom of schema 0006 that was killed in the midst of its work, for ``test_upgrade.py``.

Run at the root of a checkout whose schema is 0006: ``python -m tests.hostile.make_0006``. It was used once; run again,
it makes a home of other ids that does as well. No test runs it.
"""

import hashlib
import io
import json
import os
import signal
import socket
import sqlite3
import sys
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.hostile.old_home import AGENTS, ARCHIVE, EXPECTED, FACT, SECRET, Model
from tests.support.agents import written
from tests.support.meeting import Meeting
from tests.support.messages_server import MessagesServer
from tests.support.system import System, leftovers
from tests.support.until import until
from tests.support.webhook_receiver import Answer, WebhookReceiver

Json = dict[str, Any]
VERSION = "0006"
ROOT = Path(__file__).parents[2]
LETTER = "".join(f"Line {n} of a long letter from a stranger.\n" for n in range(900))
"""More than LOOM_REFERENCE_BYTES, so it is kept apart."""
SAID = (FACT, "Read the letter.", "Connect.", "Where is the spare key?")
"""All turns of the session ``done``."""


def main() -> None:
    """Make the archive anew."""
    with tempfile.TemporaryDirectory(prefix="loom-old-") as place, Meeting() as meeting, WebhookReceiver() as receiver:
        folder = Path(place)
        model = Model(meeting.port)
        agents = Path(written(folder / "agents", AGENTS))
        (agents / "letter.txt").write_text(LETTER)
        with MessagesServer(script=model) as server:
            environ = {
                "ANTHROPIC_BASE_URL": server.url,
                "LOOM_AGENTS_DIR": str(agents),
                "LOOM_WEBHOOK_SECRET": SECRET,
                "LOOM_ALLOW_PRIVATE_WEBHOOKS": "1",
            }
            with System(folder / "home", **environ) as system:
                told = _lived(system, meeting, receiver)
                system.kill_supervisor()
                until(lambda: not leftovers(system.home), 10, "all are dead")
            model.release.set()
        _freeze(system.home, told, {str(folder): "/srv", str(ROOT): "/srv/loom", sys.prefix: "/srv/python"})
    sys.stdout.write(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes\n")


def _lived(system: System, meeting: Meeting, receiver: WebhookReceiver) -> Json:
    """Bring the system where it shall be killed; what it told of all that had ended."""
    ended = [_ended(system, "done", text) for text in SAID]
    cancelled = system.submit("cancelled", "Wait.", agent="worker")
    until(lambda: _has_spoken(system, cancelled), 30, "the turn to be cancelled speaks")
    system.post(f"/v1/turns/{cancelled}/cancel")
    ended.append(system.ended(cancelled))

    unfinished = {"changing": [_submit(system, "changing", "Change it.")]}
    meeting.guests(1)
    unfinished["person"] = [_submit(system, "person", "Pay them.")]
    until(lambda: _waits_for_a_person(system, unfinished["person"][0]), 30, "one waits for a person")

    receiver.answer_with(Answer(status=500))
    ended.append(system.ended(system.submit("hook", "Tell them.", agent="worker", webhook=receiver.url)))
    delivery = until(lambda: _failed_deliveries(system), 30, "the webhook was refused")[0]
    os.kill(system.children["worker-3"], signal.SIGSTOP)  # no tool is run from here on, and no webhook sent
    unfinished["counting"] = [_submit(system, "counting", "Count.")]
    parked = "SELECT 1 FROM calls, turns WHERE turns.id = turn_id AND calls.status = 'pending' AND name = 'count' "
    until(lambda: system.rows(parked + "AND held_by IS NULL"), 30, "one is parked on a call")
    for session in unfinished:
        unfinished[session] += [_submit(system, session, text) for text in ("and then?", "and after that?")]
    unfinished["running"] = [_submit(system, "running", text) for text in ("Wait.", "second", "third")]
    until(lambda: _has_spoken(system, unfinished["running"][0]), 30, "one is in the middle of its answer")
    return _told(system, ended, delivery) | {"unfinished": unfinished}


def _told(system: System, ended: list[Json], delivery: Json) -> Json:
    error_id = next(call["error_id"] for call in ended[2]["tool_calls"] if call["error_id"])
    ref = ended[1]["tool_calls"][0]["ref"]
    return {
        "turns": {turn["id"]: system.turn(turn["id"]) for turn in ended},
        "messages": {session: system.messages(session) for session in ("done", "cancelled", "hook")},
        "events": {
            turn["id"]: [[each.id, each.type, each.data] for each in system.events(turn["id"])] for turn in ended
        },
        "found": system.get("/v1/sessions/done/search?q=spare+key").json["data"],
        "error": system.get(f"/v1/errors/{error_id}").json,
        "blob": hashlib.sha256(system.get(f"/v1/blobs/{ref}").body).hexdigest(),
        "delivery": delivery,
    }


def _events(system: System, turn_id: str) -> list[list[Any]]:
    return [[event.id, event.type, event.data] for event in system.events(turn_id)]


def _submit(system: System, session: str, text: str) -> str:
    return system.submit(session, text, agent="worker")


def _ended(system: System, session: str, text: str) -> Json:
    turn = system.ended(_submit(system, session, text))
    assert turn["status"] == "completed", turn
    return turn


def _has_spoken(system: System, turn_id: str) -> bool:
    with system.redis() as client:
        events: Any = client.xrange(f"loom:events:{turn_id}")
    return any(fields["t"] == "output_text.delta" for _, fields in events)


def _waits_for_a_person(system: System, turn_id: str) -> bool:
    turn = system.turn(turn_id)
    return bool(turn["status"] == "requires_action" and turn["tool_calls"][1]["status"] == "completed")


def _failed_deliveries(system: System) -> list[Json]:
    return [delivery for delivery in system.get("/v1/deliveries").json["data"] if delivery["attempts"] == 1]


def _freeze(home: Path, told: Json, names: dict[str, str]) -> None:
    """Write the archive. Args: names: of this machine, to what stands there instead."""
    names = {**names, f"{socket.gethostname()}-": "old-host-"}  # as workers' names begin
    with closing(sqlite3.connect(home / "loom.db")) as database:
        assert database.execute("SELECT version_num FROM loom_version").fetchall() == [(VERSION,)]
        for name, other in names.items():
            _rename(database, name, other)
        database.commit()
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    text = json.dumps(told | {"frozen_ms": int(time.time() * 1000)}, indent=1)
    for name, other in names.items():
        text = text.replace(name, other)
    (home / EXPECTED).write_text(text)
    files = [home / "loom.db", home / EXPECTED, *(file for file in (home / "blobs").rglob("*") if file.is_file())]
    left = [(file.name, name) for file in files for name in names if name.encode() in file.read_bytes()]
    assert left == []
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tarfile.open(ARCHIVE, "w:gz") as archive:
        for file in files:
            _add(archive, str(file.relative_to(home)), file.read_bytes())


def _rename(database: sqlite3.Connection, name: str, other: str) -> None:
    columns = database.execute(
        "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c "
        "WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND t.name NOT LIKE 'messages_fts5%' "
        "AND c.type NOT LIKE '%INT'"
    ).fetchall()
    for table, column in columns:
        database.execute(
            f'UPDATE "{table}" SET "{column}" = replace("{column}", ?1, ?2) WHERE instr("{column}", ?1)', (name, other)
        )


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
