"""What files of tools import from the package itself."""

import pytest

import loom_worker
from loom_worker.core import errors
from loom_worker.core.values import tools
from loom_worker.tools import declare


def test_the_package_gives_what_a_file_of_tools_needs() -> None:
    from loom_worker import Caller, ToolFailed, tool

    assert (tool, Caller, ToolFailed) == (declare.tool, tools.Caller, errors.ToolFailed)
    assert tool(_say).spec.name == "_say"


def _say(words: str) -> str:
    """Say it."""
    return words


def test_every_name_that_the_package_offers_is_there_and_no_other() -> None:
    assert [name for name in loom_worker.__all__ if not hasattr(loom_worker, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Tol'"):
        _ = loom_worker.Tol
