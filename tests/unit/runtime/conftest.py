"""A file of the sample shop."""

from contextlib import closing

import pytest

from loom_worker.core.sqlite_driver import sqlite3
from tests.support.tiny_shop import open_shop


@pytest.fixture(scope="module")
def shop_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    with closing(open_shop()) as shop, closing(sqlite3.connect(path)) as file:
        shop.commit()
        shop.backup(file)
    return f"sqlite:///{path}"
