"""What a process that was killed left of a large result."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import fakeredis
import pytest

from loom_worker.core.metrics import LARGE_RESULT_EVENTS
from loom_worker.core.settings_tree import BlobSettings, Settings
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.tools.references import References, stores
from tests.support.counting import counting
from tests.unit.store.made import running
from tests.unit.tools.results.made import a_day_later, caller_of, files, keep, tidied

pytestmark = pytest.mark.heavy

KILLED = """
import os, signal, sys
from pathlib import Path
import fakeredis
from loom_worker.tools.references import References, stores
from loom_worker.core.metrics import LARGE_RESULT_EVENTS
from loom_worker.core.settings_tree import BlobSettings
from loom_worker.store.blobs import BlobRows
from loom_worker.store.database import Database
from loom_worker.core.values.tools import Caller

settings = BlobSettings(folder=Path(sys.argv[2]))
BlobRows.insert = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
rows = BlobRows(Database(sys.argv[1]))
caller = Caller(sys.argv[3], "s1", "acme", "turn_1", "toolu_1")
references = References(stores(settings, rows, fakeredis.FakeRedis()), settings)
references.keep("x" * 5000, "text/plain", caller, tool="look", count=len)
"""


def test_a_file_whose_writer_was_killed_before_its_row_is_removed_once_it_is_old(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    blobs, caller = BlobSettings(folder=tmp_path / "blobs"), caller_of(running(database))
    references = References(stores(blobs, BlobRows(database), fakeredis.FakeRedis()), blobs)
    kept = keep(references, "y" * 5_000, caller).reference.id
    arguments = [settings.database_url, str(tmp_path / "blobs"), caller.lane]
    died = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert died.returncode == -signal.SIGKILL
    assert len(files(tmp_path)) == 2
    assert tidied(references, int(time.time() * 1000)) == 0
    with counting() as counted:
        assert tidied(references, a_day_later()) == 1
        assert counted(LARGE_RESULT_EVENTS)["strays",] == 1
    assert [file.name for file in files(tmp_path)] == [kept.removeprefix("ref_")]
