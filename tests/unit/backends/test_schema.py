import pytest

from loom_worker.backends.schema import MAX_DESCRIPTION_CHARS, CatalogCache, Table, TableCatalog, describe, fold, narrow
from loom_worker.core.values.agents import Scope
from tests.support.at_once import at_once

ORDERS_TABLE = Table("orders", (("id", "INTEGER"), ("total", "REAL"), ("placed_on", "DATE")), ("id",), ())
LINES = Table("lines", (("order_id", "INTEGER"), ("revenue", "")), (), (("order_id", "orders.id"),))


def test_a_table_is_one_line_with_its_keys() -> None:
    assert ORDERS_TABLE.line() == "orders(id INTEGER PK, total REAL, placed_on DATE)"
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
    lines = describe([odd, with_odd, ORDERS_TABLE], "sqlite").splitlines()
    assert lines[1:] == [
        "plain(id ENUM('a b'))",
        ORDERS_TABLE.line(),
        "Left out, for their names are too long or hold what cannot be seen: 1 tables, 1 columns",
    ]


def test_a_name_of_any_script_and_200_characters_is_shown() -> None:
    names = ("Größe in m²", "注文", "می\u200cخواهم", "x" * 200)
    text = describe([Table(name, ((name, ""),), (), ()) for name in names], "sqlite")
    assert text.splitlines()[1:] == [f"{name}({name})" for name in names]


CUSTOMERS = Table("customers", (("id", "INTEGER"), ("name", "TEXT"), ("email", "TEXT")), ("id",), (), "public")
SECRETS = Table("secrets", (("id", "INTEGER"),), ("id",), (), "public")
ORDERS = Table(
    "orders",
    (("id", "INTEGER"), ("customer_id", "INTEGER"), ("secret_id", "INTEGER")),
    ("id",),
    (("customer_id", "customers.id"), ("secret_id", "secrets.id")),
    "public",
)
PAY = Table("pay", (("id", "INTEGER"),), ("id",), (("id", "customers.email"),), "hr", is_default=False)
ALL = (CUSTOMERS, ORDERS, SECRETS, PAY)


def names(catalog: TableCatalog) -> list[str]:
    return [table.path for table in catalog.tables]


@pytest.mark.cases(
    ("scope", "seen"),
    [
        (Scope(), ["customers", "orders", "secrets", "hr.pay"]),
        (Scope(schemas=("public",)), ["customers", "orders", "secrets"]),
        (Scope(schemas=("hr",)), ["hr.pay"]),
        (Scope(tables=("orders", "hr.pay")), ["orders", "hr.pay"]),
        (Scope(tables=("public.orders",)), ["orders"]),
        (Scope(tables=("pay",)), []),  # a bare name is the default schema's
        (Scope(schemas=("hr",), tables=("pay",)), ["hr.pay"]),
        (Scope(schemas=("hr",), tables=("orders",)), []),
        (Scope(tables=("Orders",)), []),
        (Scope(tables=()), []),
    ],
)
def test_only_what_the_scope_names_is_seen(scope: Scope, seen: list[str]) -> None:
    assert names(narrow(ALL, scope, "postgresql")) == seen


def test_case_is_no_matter_where_it_is_none_to_the_database() -> None:
    assert names(narrow(ALL, Scope(tables=("ORDERS",)), "duckdb")) == ["orders"]


def test_hidden_columns_leave_no_trace() -> None:
    catalog = narrow(ALL, Scope(columns=("customers.id", "public.customers.name")), "postgresql")
    customers = catalog.find(None, "customers")
    assert customers is not None
    assert [name for name, _ in customers.columns] == ["name"]  # the full name is the stricter of the two
    assert customers.primary_key == ()
    assert catalog.hidden_columns(customers) == {"id", "email"}
    orders, pay = catalog.find(None, "orders"), catalog.find("hr", "pay")
    assert orders is not None
    assert pay is not None
    assert orders.foreign_keys == (("secret_id", "secrets.id"),)
    assert pay.foreign_keys == ()
    assert catalog.hidden_columns(orders) == frozenset()


def test_references_to_hidden_tables_leave_no_trace() -> None:
    (orders,) = narrow(ALL, Scope(tables=("orders",)), "postgresql").tables
    assert orders.foreign_keys == ()


def test_a_table_is_found_by_the_names_its_database_would_find_it_by() -> None:
    catalog = narrow(ALL, Scope(), "postgresql")
    assert catalog.find(None, "orders") is catalog.find("public", "orders") is not None
    assert catalog.find(None, "Orders") is None
    assert catalog.find(None, "pay") is None
    assert narrow(ALL, Scope(), "duckdb").find("HR", "PAY") is not None


def test_columns_of_postgresql_alone_tell_case_apart() -> None:
    table = Table("t", (("Case", "INTEGER"), ("case", "INTEGER")), (), (), "public")
    hidden = {kind: narrow([table], Scope(columns=("t.case",)), kind).hidden for kind in ("postgresql", "mysql")}
    assert hidden == {"postgresql": {"t": frozenset({"Case"})}, "mysql": {}}


def test_only_ascii_is_folded() -> None:
    assert fold("SELECT \u212a Straße Ä") == "select \u212a straße Ä"


def test_a_scope_that_names_what_is_not_there_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    narrow(ALL, Scope(schemas=("public", "gone"), tables=("ordres",), columns=("custmers.id",)), "postgresql")
    assert "custmers.id, gone, ordres" in caplog.text
    caplog.clear()
    narrow(ALL, Scope(tables=("orders",)), "postgresql")
    assert caplog.text == ""


EMPTY = TableCatalog("sqlite", (), {})


def test_a_catalog_is_read_once_until_it_is_old_or_dropped() -> None:
    reads: list[float] = []
    now = [0.0]

    def read() -> TableCatalog:
        reads.append(now[0])
        return EMPTY

    catalogs = CatalogCache(read, ttl_s=60, clock=lambda: now[0])
    for now[0] in (0.0, 59.0, 60.0, 61.0, 100.0):
        assert catalogs.get() is EMPTY
    assert reads == [0.0, 61.0]
    catalogs.drop()
    catalogs.get()
    assert reads == [0.0, 61.0, 100.0]


def test_threads_that_ask_at_once_wait_for_one_reading() -> None:
    reads: list[int] = []

    def read() -> TableCatalog:
        reads.append(1)
        return EMPTY

    catalogs = CatalogCache(read)
    at_once(lambda _: catalogs.get(), range(8))
    assert reads == [1]
