"""What workers say of leases they lost."""

from pathlib import Path

from tests.chaos import starved


def test_each_lost_lease_is_told_with_its_worker_and_the_time_since_its_last_renewal(tmp_path: Path) -> None:
    (tmp_path / "turns-1.log").write_text(
        '{"time": "2026-11-22T03:41:07.500Z", "level": "WARNING", "message": "lease lost", "lane": "a"}\n'
        '{"time": "2026-11-22T03:41:08.000Z", "level": "INFO", "message": "turn completed"}\n'
        "not JSON at all\n"
    )
    (tmp_path / "web.log").write_text("")
    (found,) = starved.read(tmp_path, lease_s=3.0)
    assert (found.kind, found.target, found.until_s, found.until_s - found.at_s) == (
        "starved",
        "turns-1",
        1795318867.5,
        3.0,
    )
