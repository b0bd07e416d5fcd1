import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loom_worker.core.isolation import landlock

PROGRAM = """
import json, os, sys
from pathlib import Path
from loom_worker.core.isolation import landlock

def tried(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

place = Path(sys.argv[1])
told = {"confined": landlock.confine([place / "home" / "secret", place / "home" / "later"])}
(place / "home" / "later").write_text("x")
told["secret"] = tried((place / "home" / "secret").read_text)
told["later"] = tried((place / "home" / "later").read_text)
told["link"] = tried((place / "link").read_text)
# Its memory and environment are closed in the same way, but for root: recent kernels show those to CAP_PERFMON.
told["parent"] = tried(lambda: os.readlink(f"/proc/{os.getppid()}/fd/1"))
told["own"] = tried(Path("/proc/self/environ").read_bytes)
told["beside"] = tried((place / "home" / "agents" / "a").read_text)
(place / "home" / "agents" / "new").write_text("x")
told["new"] = tried((place / "home" / "agents" / "new").read_text)
told["moved out"] = tried(lambda: (place / "home" / "secret").rename(place / "home" / "agents" / "secret"))
print(json.dumps(told))
"""


@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock, or it is switched off")
def test_hidden_files_and_other_processes_cannot_be_read_and_all_else_can(tmp_path: Path) -> None:
    (tmp_path / "home" / "agents").mkdir(parents=True)
    (tmp_path / "home" / "secret").write_text("s")
    (tmp_path / "home" / "agents" / "a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "home" / "secret")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "confined": True,
        **dict.fromkeys(("secret", "later", "link", "parent"), "PermissionError"),
        **dict.fromkeys(("own", "beside", "new"), "done"),
        "moved out": "OSError",
    }


def test_what_is_shown_are_the_largest_trees_without_a_hidden_path(tmp_path: Path) -> None:
    for name in ("home/agents", "home/logs", "beside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / "link").symlink_to("logs")
    shown = list(landlock.shown([tmp_path / "home" / "logs", tmp_path / "home" / "not-there"]))
    assert sorted(path for path in shown if path.startswith(f"{tmp_path}/")) == [
        str(tmp_path / "beside"),
        str(tmp_path / "home" / "agents"),
    ]
    assert [path for path in shown if f"{tmp_path}/".startswith(f"{path}/")] == []
    assert all(os.path.lexists(path) for path in shown)
    assert list(landlock.shown([])) == ["/"]
