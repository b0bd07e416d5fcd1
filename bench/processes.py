"""What the processes of a Loom take of the machine, read from /proc."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
SERVERS = ("valkey-server", "redis-server")
SINGLE = {"up": "loom up", "web": "web", "beat": "beat", "flower": "flower"}
"""Command of `loom` to the kind of process; workers are told apart by their queues."""


def kind_of(argv: Sequence[str]) -> str:
    """What a process of Loom's is: web, turn workers, tool worker, valkey, beat, flower, loom up, or other."""
    if Path(argv[0].split(" ")[0]).name in SERVERS:
        return "valkey"
    if "worker" in argv and "--queues" in argv:
        queues = argv[argv.index("--queues") + 1].split(",")
        return "turn workers" if "turn" in queues else "tool worker"
    return next((kind for command, kind in SINGLE.items() if command in argv), "other")


def processes(home: Path) -> dict[int, str]:
    """Pid to kind of every process that has this LOOM_HOME in its environment, and of their children.

    Children, for Valkey writes its title over its own environment.
    """
    mark = f"LOOM_HOME={home}".encode()
    lines = dict(_command_lines())
    marked = {pid for pid in lines if mark in _read(pid, "environ").split(b"\0")}
    return {pid: kind_of(argv) for pid, argv in lines.items() if pid in marked or _parent(pid) in marked}


def family(roots: Iterable[int]) -> set[int]:
    """These processes and all that they started, and so on."""
    parents = {pid: _parent(pid) for pid, _ in _command_lines()}
    found: set[int] = set()
    wanted = set(roots)
    while wanted:
        found |= wanted
        wanted = {pid for pid, parent in parents.items() if parent in wanted} - found
    return found


def cpu_ms(pid: int) -> float:
    """Processor time of a process and its ended children since its start; 0 once it is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) * TICK_MS if fields else 0.0


def cpu_ms_by_kind(home: Path) -> dict[str, float]:
    """Processor time of all processes of a home, summed by kind."""
    total: dict[str, float] = {}
    for pid, kind in processes(home).items():
        total[kind] = total.get(kind, 0.0) + cpu_ms(pid)
    return total


def pss_mib(pids: Iterable[int]) -> float:
    """Memory of processes together; pages that several share are counted once."""
    return sum(_pss_kib(pid) for pid in pids) / 1024


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[bytes]:
    """The fields behind the name in brackets, which may hold anything: state, parent and so on."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _pss_kib(pid: int) -> int:
    lines = _read(pid, "smaps_rollup").decode().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _command_lines() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (line := _read(int(folder.name), "cmdline")):
            yield int(folder.name), line.decode(errors="replace").rstrip("\0").split("\0")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
