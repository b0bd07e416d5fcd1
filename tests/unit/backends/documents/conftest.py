"""A folder of documents in a temporary place."""

from pathlib import Path

import pytest

from tests.unit.backends.documents.made import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
