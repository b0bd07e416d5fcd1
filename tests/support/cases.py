"""The marker ``cases``: a table of cases as one test, which runs them all and names each one that fails.

``@pytest.mark.cases("url, port", TABLE)`` reads like ``parametrize``, but makes one item instead of one for each row.
It is for tables of literal data, where collecting and reporting an item costs more than running it. All rows share the
test's fixtures, so a row must leave them as it found them.
"""

import inspect
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest

MARKER = "cases(names, rows, ids=None): run the test for every row, as one test; see tests/support/cases.py"


def hide_names(test: Any) -> None:
    """Take the names that rows give from a test's signature, so that pytest looks for no fixtures of these names."""
    if not inspect.isfunction(test):
        return
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "cases"]
    if marks and not hasattr(test, "__signature__"):
        given = {name for mark in marks for name in _names(mark)}
        signature = inspect.signature(test)
        if unknown := given - set(signature.parameters):
            raise pytest.UsageError(f"{test.__qualname__} takes no argument {', '.join(sorted(unknown))}")
        kept = [each for name, each in signature.parameters.items() if name not in given]
        test.__signature__ = signature.replace(parameters=kept)


def run_all(item: pytest.Function) -> bool:
    """Run a marked test for all its rows; False if it is not marked."""
    marks = [mark for mark in item.own_markers if mark.name == "cases"]
    if not marks:
        return False
    fixtures = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    failed: list[BaseException] = []
    count = 0
    for rows in product(*map(_rows, marks)):
        count += 1
        try:
            item.obj(**fixtures, **{name: value for _, row in rows for name, value in row.items()})
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"the case: {', '.join(told for told, _ in rows)}")
            failed.append(error)
    assert count, "no case"
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {count} cases failed", failed)
    return True


def _names(mark: pytest.Mark) -> Sequence[str]:
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else names


def _rows(mark: pytest.Mark) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each row is called, and what it gives."""
    names, ids = _names(mark), mark.kwargs.get("ids")
    for number, row in enumerate(mark.args[1]):
        values = (row,) if len(names) == 1 else row
        called = repr(row) if ids is None else str(ids(row) if callable(ids) else list(ids)[number])
        yield called[:300], dict(zip(names, values, strict=True))
