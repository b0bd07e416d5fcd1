import pytest

from loom_worker.backends.schema import MAX_DESCRIPTION_CHARS, Table, describe

ORDERS = Table("orders", (("id", "INTEGER"), ("total", "REAL"), ("placed_on", "DATE")), ("id",), ())
LINES = Table("lines", (("order_id", "INTEGER"), ("revenue", "")), (), (("order_id", "orders.id"),))


def test_a_table_is_one_line_with_its_keys() -> None:
    assert ORDERS.line() == "orders(id INTEGER PK, total REAL, placed_on DATE)"
    assert LINES.line() == "lines(order_id INTEGER -> orders.id, revenue)"


def test_a_large_schema_names_the_tables_it_cannot_describe() -> None:
    tables = [
        Table(f"t{number:04}", tuple((f"column_{n}", "TEXT") for n in range(20)), (), ()) for number in range(200)
    ]
    text = describe(tables, "sqlite")
    assert len(text) < 2.5 * MAX_DESCRIPTION_CHARS
    assert "t0000(column_0 TEXT" in text
    assert "t0199" in text.splitlines()[-1]
    assert text.splitlines()[-1].startswith("Further tables")


def test_a_table_of_another_schema_is_called_by_both_names() -> None:
    table = Table("pay", (("id", "INTEGER"),), ("id",), (), "hr", is_default=False)
    assert table.line() == "hr.pay(id INTEGER PK)"
    assert table.as_json()["name"] == "hr.pay"


@pytest.mark.cases("name", ["a\nb", "a\u202eb", "a\u200bb", "a\tb", "a\u2028b", "x" * 3000])
def test_a_name_that_no_line_can_show_is_left_out_and_counted(name: str) -> None:
    odd = Table(name, (("id", "INTEGER"),), (), ())
    with_odd = Table("plain", (("id", "ENUM('a\nb')"), (name, "TEXT")), (name,), (("id", f"{name}.id"),))
    lines = describe([odd, with_odd, ORDERS], "sqlite").splitlines()
    assert lines[1:] == [
        "plain(id ENUM('a b'))",
        ORDERS.line(),
        "Left out, for their names are too long or hold what cannot be seen: 1 tables, 1 columns",
    ]


def test_a_name_of_any_script_and_200_characters_is_shown() -> None:
    names = ("Größe in m²", "注文", "می\u200cخواهم", "x" * 200)
    text = describe([Table(name, ((name, ""),), (), ()) for name in names], "sqlite")
    assert text.splitlines()[1:] == [f"{name}({name})" for name in names]
