import json
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, json, os, subprocess, sys
from loom_worker.core.isolation import process

def shown():
    with open("/proc/self/environ", "rb") as file:
        content = file.read()
    return [word for word in ("first", "second", "third") if word.encode() in content]

before = shown()
process.forget(["GONE", "NOT_THERE"])
process.overwrite(["BLANK"])
names = ("GONE", "BLANK", "KEPT")
child = [sys.executable, "-c", f"import json, os; print(json.dumps([os.environ.get(name) for name in {names}]))"]
inherited = json.loads(subprocess.run(child, capture_output=True, check=True).stdout)
own = [os.environ.get(name) for name in names]
hidden = process.hide()
print(json.dumps([before, shown(), inherited, own, hidden, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and this prctl")
def test_a_process_forgets_variables_blanks_others_and_hides() -> None:
    environ = {"GONE": "first", "BLANK": "second", "KEPT": "third"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True)
    before, after, inherited, own, is_hidden, is_dumpable = json.loads(done.stdout)
    assert (before, after) == (["first", "second", "third"], ["third"])
    assert inherited == [None, "", "third"]
    assert own == [None, "second", "third"]
    assert (is_hidden, is_dumpable) == (True, 0)
