import sys
from pathlib import Path

from bench.crew import wanted
from bench.figures.footprint import sizes
from loom_worker.supervisor.specs import WORKERS


def test_only_workers_are_run_by_another_command(tmp_path: Path) -> None:
    entry = (sys.executable, "-m", "some.entry")
    plain, ours = (wanted({"LOOM_HOME": str(tmp_path)}, command) for command in ((), entry))
    workers = {name for name, _ in WORKERS}
    for name in workers:
        command, rest = ours[name].argv[:3], ours[name].argv[3:]
        assert command == entry
        assert rest == plain[name].argv[-len(rest) :]
        assert rest[0] == "worker"
    assert all(entry != ours[name].argv[:3] for name in ours.keys() - workers)


def test_other_processes_can_be_run_by_it_too(tmp_path: Path) -> None:
    entry = (sys.executable, "-m", "some.entry")
    ours = wanted({"LOOM_HOME": str(tmp_path)}, entry, ("web", "worker-", "beat"))
    assert {name for name, spec in ours.items() if spec.argv[:3] == entry} == ours.keys() - {"valkey", "flower"}


def test_what_a_home_takes_is_its_database_with_the_log_and_the_data_of_valkey(tmp_path: Path) -> None:
    (tmp_path / "loom.db").write_bytes(b"x" * 10)
    (tmp_path / "loom.db-wal").write_bytes(b"x" * 20)
    (tmp_path / "valkey" / "appendonlydir").mkdir(parents=True)
    for name in ("1.aof", "2.aof"):
        (tmp_path / "valkey" / "appendonlydir" / name).write_bytes(b"x" * 30)
    (tmp_path / "shop.db").write_bytes(b"x" * 1000)
    assert list(sizes(tmp_path).values()) == [10, 20, 60]


def test_a_home_without_anything_takes_nothing(tmp_path: Path) -> None:
    assert set(sizes(tmp_path).values()) == {0}
