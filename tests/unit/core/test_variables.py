import re
from pathlib import Path

import pytest

from loom_worker.core.settings_tree import Settings, declared
from loom_worker.core.variables import Variable, without_password

ROWS = {
    name: default.strip("`")
    for name, default in re.findall(
        r"^\| `([A-Z0-9_]+)` \| ([^|]+) \|",
        (Path(__file__).parents[3] / "docs" / "settings.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
}
FIXED = [(variable, value) for variable, value in declared(Settings()) if isinstance(value, bool | int | float)]


@pytest.mark.cases(("variable", "value"), FIXED, ids=[variable.name for variable, _ in FIXED])
def test_the_docs_name_the_default_of_each_number(variable: Variable, value: float) -> None:
    assert ROWS[variable.name] == f"{value:.0f}" or variable.name == "LOOM_RESERVED_OUTPUT_TOKENS"


def test_no_two_fields_are_set_by_one_variable() -> None:
    names = [variable.name for variable, _ in declared(Settings())]
    assert len(names) == len(set(names))
    assert set(names) == set(ROWS)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////data/shop.db", "sqlite:////data/shop.db"),
        ("redis://:p%40ss@h:6379/0", "redis://:***@h:6379/0"),
        ("mysql://u:a:b@h/x?y=1", "mysql://u:***@h/x?y=1"),
        ("https://u@h/x", "https://u@h/x"),
        ("postgresql://u:a?b#c@h/x", "postgresql://u:***@h/x"),
        ("mysql+pymysql://h/x?y=1&Password=pw&ssl=1", "mysql+pymysql://h/x?y=1&Password=***&ssl=1"),
        ("https://h/mcp?api_key=k#f", "https://h/mcp?api_key=***#f"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown
