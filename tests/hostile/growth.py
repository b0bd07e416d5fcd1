"""What a running Loom uses: memory, files and threads of its processes, Redis, the database, the files of its home."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.system import System, leftovers

NEVER = -1
"""What Redis tells of a key that does not expire."""
PASSING_S = 3600
"""The longest that anything of a turn is kept in Redis once the turn has ended."""


@dataclass(frozen=True)
class Process:
    """One that lives as long as Loom."""

    pid: int
    memory_kb: int
    """Its anonymous memory: private, and its share of what it has in common with others. Without pages of files."""
    fds: int
    threads: int


@dataclass(frozen=True)
class _Key:
    """Of Redis."""

    name: str
    ttl_ms: int
    """NEVER: it does not expire; below that: it has gone meanwhile."""
    size_bytes: int

    @property
    def stays(self) -> bool:
        """True if it does not go by itself within PASSING_S."""
        return self.ttl_ms == NEVER or self.ttl_ms > PASSING_S * 1000


@dataclass(frozen=True)
class Sample:
    """What is used at one moment, while nothing runs."""

    turns: int
    processes: dict[str, Process]
    children: int
    """Further processes: those in which tools run."""
    keys: Counter[str]
    """Redis' keys by kind, of those that stay."""
    redis_bytes: int
    """Used by Redis, without the keys that go by themselves and without the buffers of connections that happen to be
    open: a few more or less of those are half of what is measured. Their number is in Redis' file descriptors."""
    passing_bytes: int
    """Of those keys: event logs, results of tasks."""
    database_bytes: int
    """Pages in use."""
    wal_bytes: int
    log_bytes: int
    files: int


def sample(system: System) -> Sample:
    """Look at everything."""
    with system.redis() as client:
        keys = _keys(client)
        used: Any = client.info("memory")
    passing = [key for key in keys if not key.stays]
    passing_bytes = sum(key.size_bytes for key in passing)
    files = [file for file in system.home.rglob("*") if file.is_file()]
    return Sample(
        turns=_number(system, "SELECT count(*) FROM turns"),
        processes={name: _process(pid) for name, pid in system.children.items()},
        children=len(leftovers(system.home)) - len(system.children),
        keys=Counter(_kind(key.name) for key in keys if key.stays),
        redis_bytes=used["used_memory"] - used["mem_clients_normal"] - passing_bytes,
        passing_bytes=passing_bytes,
        database_bytes=_database_bytes(system),
        wal_bytes=_size(system.home / "loom.db-wal"),
        log_bytes=sum(_size(file) for file in (system.home / "logs").iterdir()),
        files=len(files),
    )


def table(samples: Sequence[Sample]) -> str:
    """The samples, a line each."""
    names = sorted(samples[0].processes)
    head = f"{'turns':>6} " + " ".join(f"{name:>16}" for name in names)
    lines = [head + "   tools  keys  redis kB  passing kB  database kB  wal kB  logs kB  files"]
    for each in samples:
        cells = (each.processes[name] for name in names)
        used = " ".join(f"{one.memory_kb / 1024:7.1f}M{one.fds:4}f{one.threads:3}t" for one in cells)
        lines.append(
            f"{each.turns:6} {used}   {each.children:5} {each.keys.total():5} {each.redis_bytes / 1024:9.0f} "
            f"{each.passing_bytes / 1024:11.0f} {each.database_bytes / 1024:12.0f} {each.wal_bytes / 1024:7.0f} "
            f"{each.log_bytes / 1024:8.0f} {each.files:6}"
        )
    return "\n".join([*lines, f"keys: {dict(samples[-1].keys)}"])


def _process(pid: int) -> Process:
    proc = Path(f"/proc/{pid}")
    lines = (proc / "smaps_rollup").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))
    return Process(pid, memory, len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())))


def _keys(client: Any) -> list[_Key]:
    names = list(client.scan_iter(count=1000))
    with client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.pttl(name)
            pipe.memory_usage(name)
        answers = pipe.execute()
    found = zip(names, answers[::2], answers[1::2], strict=True)
    return [_Key(name, ttl_ms, size or 0) for name, ttl_ms, size in found]


def _kind(name: str) -> str:
    """A key's name without the part that only one turn, session or worker has."""
    parts = name.split(":")
    return ":".join(parts[:2] if len(parts) > 2 and parts[1] != "q" else parts[:3])


def _number(system: System, query: str) -> int:
    return int(system.rows(query)[0][0])


def _database_bytes(system: System) -> int:
    pages, free, size = (_number(system, f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
