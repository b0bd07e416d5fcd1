import json
from collections import Counter

import pytest

from bench import counts, wal
from bench.ceilings import CEILINGS
from bench.figures.budget import (
    COMMANDS,
    DATABASE_KIB,
    ROUND_TRIPS,
    VALKEY_KIB,
    WAL_KIB,
    WAL_PAGES,
    Look,
    by_name,
    difference,
    per_turn,
)
from bench.report import Report


def test_what_loom_does_without_turns_is_no_part_of_a_turn() -> None:
    spent = per_turn({COMMANDS: 700.0, ROUND_TRIPS: 3.0}, 10.0, 100, idle_per_s={COMMANDS: 20.0, ROUND_TRIPS: 1.0})
    assert spent == {COMMANDS: 5.0, ROUND_TRIPS: 0.0}


def test_pages_and_growth_come_from_the_log() -> None:
    before = Look(1.0, Counter({COMMANDS: 5}), wal.Log((1, 2), 4096, 10, 3, 100))
    after = Look(3.5, Counter({COMMANDS: 9}), wal.Log((1, 2), 4096, 14, 5, 102))
    amounts, took_s = difference(before, after)
    assert took_s == 2.5
    assert amounts == {COMMANDS: 4, WAL_PAGES: 4, WAL_KIB: 4 * 4120 / 1024, DATABASE_KIB: 8.0}


def test_every_ceiling_is_of_something_that_is_counted() -> None:
    counted = by_name(
        {"web": Counter(dict.fromkeys(counts.COUNTS, 1)), "beat": Counter(dict.fromkeys(counts.COUNTS, 1))}
    )
    others = {COMMANDS, ROUND_TRIPS, WAL_PAGES, WAL_KIB, DATABASE_KIB, VALKEY_KIB}
    assert CEILINGS.keys() <= counted.keys() | others


def test_a_count_above_its_ceiling_is_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(is_quick=True)
    report.begin("budget")
    report.count("commits", 1.0, ceiling=1.0)
    report.count("pages", 51.2, ceiling=50.0)
    report.count("tries", 99.0, ceiling=None)
    assert report.exceeded == ["pages: 51.20, and 50 are allowed"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("ceiling") for line in lines] == [1.0, 50.0, None]
