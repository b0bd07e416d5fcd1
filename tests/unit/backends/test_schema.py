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
