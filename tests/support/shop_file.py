"""The file of the sample shop, built once a test run; nothing may write to it."""

from datetime import date
from pathlib import Path

import pytest

from loom_worker.demo import shop

TODAY = date(2026, 11, 21)


@pytest.fixture(scope="session")
def shop_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    shop.build(path, today=TODAY)
    return path
