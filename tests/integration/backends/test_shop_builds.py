"""The sample shop built anew, for this day and that."""

import contextlib
import hashlib
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.demo import shop
from tests.support.shop_file import TODAY

pytestmark = [pytest.mark.heavy, pytest.mark.takes(12)]

DATED = {
    "orders": "SELECT * FROM orders WHERE date(ordered_at) < ? ORDER BY id",
    "order_lines": """SELECT l.* FROM order_lines l JOIN orders o ON o.id = l.order_id
                      WHERE date(o.ordered_at) < ? ORDER BY l.id""",
    "payments": "SELECT * FROM payments WHERE date(paid_at) < ? ORDER BY id",
    "returns": "SELECT * FROM returns WHERE returned_on < ? ORDER BY id",
    "customers": "SELECT * FROM customers WHERE signed_up_on < ? ORDER BY id",
    "promotions": "SELECT * FROM promotions WHERE starts_on < ? ORDER BY id",
    "products": "SELECT * FROM products WHERE introduced_on < ? ORDER BY id",
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("earlier") / "shop.db"
    shop.build(path, today=date(2026, 2, 20))
    return path


def rows(path: Path, sql: str, *parameters: object) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as opened:
        return opened.execute(sql, parameters).fetchall()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_same_today_gives_the_same_file(shop_path: Path, tmp_path: Path) -> None:
    shop.build(tmp_path / "shop.db", today=TODAY)
    assert digest(tmp_path / "shop.db") == digest(shop_path)


@pytest.mark.parametrize("table", DATED)
def test_a_dates_rows_do_not_depend_on_today(shop_path: Path, earlier: Path, table: str) -> None:
    then, now = (rows(path, DATED[table], "2026-02-20") for path in (earlier, shop_path))
    assert then == now
    assert then == rows(earlier, f"SELECT * FROM {table} ORDER BY id")


def test_two_whole_years_stand_even_on_new_years_day(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    shop.build(path, today=date(2027, 1, 1))
    assert rows(path, "SELECT min(date(ordered_at)), max(date(ordered_at)) FROM orders") == [
        ("2025-01-01", "2026-12-31")
    ]
    assert rows(path, "SELECT count(DISTINCT date(ordered_at)) FROM orders") == [(730,)]
    [(lines,)] = rows(path, "SELECT count(*) FROM order_lines")
    assert lines >= 20_000


def test_a_leap_day_is_a_day_like_any_other(tmp_path: Path) -> None:
    shop.build(tmp_path / "shop.db", today=date(2028, 3, 1))
    [(orders,)] = rows(tmp_path / "shop.db", "SELECT count(*) FROM orders WHERE date(ordered_at) = '2028-02-29'")
    assert orders > 0


def test_ensure_builds_once_and_leaves_a_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "shop.db"
    assert shop.ensure(path, today=date(2026, 1, 1))
    before = digest(path)
    assert not shop.ensure(path, today=date(2026, 11, 21))
    assert digest(path) == before
    assert [each.name for each in path.parent.iterdir()] == ["shop.db"]


def test_a_build_that_fails_leaves_neither_a_file_nor_a_half_one(tmp_path: Path) -> None:
    taken = tmp_path / "shop.db"
    taken.mkdir()
    (taken / "something").touch()
    with pytest.raises(OSError, match=r"shop\.db"):
        shop.build(taken, today=date(2026, 1, 1))
    assert [each.name for each in tmp_path.iterdir()] == ["shop.db"]


def test_a_process_that_builds_no_shop_reads_none_of_its_words() -> None:
    code = "import sys, loom_worker.runtime.build; print('loom_worker.demo.shop_catalogue' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "False\n"
    code = "import loom_worker.demo.shop; print(loom_worker.demo.shop_catalogue.words.cache_info().currsize)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "0\n"
