import pytest

from loom_worker.backends.parse import FUNCTIONS, GRAMMAR, Missing, Statement, judge, parse
from loom_worker.backends.schema import Table, TableCatalog, narrow
from loom_worker.backends.statements import MAX_SQL_CHARS, Parameters
from loom_worker.core.errors import ToolFailed
from loom_worker.core.values.agents import Scope
from tests.support.sql_attacks import CALLS, SPIES, WRITES, Attack

SERVERS = ("postgresql", "mysql", "duckdb")


def refusal(sql: str, kind: str, parameters: Parameters | None = None) -> str:
    with pytest.raises(ToolFailed) as caught:
        parse(sql, kind, parameters=parameters)
    assert caught.value.code == "INVALID_INPUT"
    return str(caught.value)


@pytest.mark.cases("kind", ["sqlite", *SERVERS, "mariadb"])
@pytest.mark.cases(
    "sql",
    [
        "SELECT 1",
        "(SELECT 1)",
        "WITH a AS (SELECT 1 AS x) SELECT x FROM a",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT * FROM c",
        "EXPLAIN SELECT 1",
        "SELECT t.a, count(*) FROM t JOIN u AS v ON v.a = t.a GROUP BY t.a HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 5",
        "SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM t",
        "SELECT CASE WHEN a IN (1, 2) THEN 'x' ELSE coalesce(b, 'y') END FROM t WHERE b LIKE '%;%'",
        "SELECT a FROM t WHERE NOT EXISTS (SELECT 1)",
        "SELECT CAST(a AS DECIMAL(10, 2)), round(a, 2), upper(trim(b)), substr(c, 1, 4) FROM t",
        "SELECT extract(year FROM d), current_date FROM t",
    ],
)
def test_what_reads_passes_unchanged(sql: str, kind: str) -> None:
    assert parse(sql, kind).sql == sql


@pytest.mark.cases(
    ("kind", "sql"),
    [
        ("postgresql", "SELECT a::numeric(10,2), d AT TIME ZONE 'UTC', x -> 'k' ->> 'l', arr[1:2] FROM t"),
        ("postgresql", "SELECT date_trunc('month', d), count(*) FILTER (WHERE a > 1) FROM t GROUP BY 1"),
        ("postgresql", "SELECT v FROM generate_series(1, 3) AS g(v)"),
        ("postgresql", "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t WHERE b ~* '^x\\d+$'"),
        ("postgresql", "SELECT DISTINCT ON (a) a, b FROM t, LATERAL (SELECT t.a) AS l(z)"),
        ("mysql", "SELECT `a`, IF(b > 1, 'x', \"y\"), DATE_FORMAT(d, '%Y-%m'), GROUP_CONCAT(c SEPARATOR ',') FROM t"),
        ("mysql", "SELECT DATE_SUB(d, INTERVAL 1 DAY), TIMESTAMPDIFF(DAY, a, b) FROM t WHERE MATCH (c) AGAINST ('x')"),
        ("duckdb", "FROM t SELECT a, list_aggregate(b, 'sum'), strftime(d, '%Y'), median(c)"),
        ("duckdb", "SELECT a, unnest(b), {'k': 1}, [1, 2] FROM t QUALIFY row_number() OVER () = 1"),
        ("duckdb", "SELECT list_transform(b, x -> x + 1) FROM t"),
    ],
)  # fmt: skip
def test_what_only_one_database_understands_passes(kind: str, sql: str) -> None:
    assert parse(sql, kind).sql == sql


@pytest.mark.cases("attack", [*WRITES, *CALLS], ids=lambda attack: attack.name)
def test_whatever_does_not_read_is_refused_before_it_reaches_a_server(attack: Attack) -> None:
    tables = {"a file as a table", "a variable of Python's"}  # of these it is the name that is refused
    for kind in set(attack.kinds) & set(SERVERS) if attack.name not in tables else ():
        refusal(attack.sql, kind)


def test_only_judged_text_is_left_between_the_tokens() -> None:
    sql = "SELECT/* a */b -- ;\n,c\u00a0FROM t /* /* */"
    assert parse(sql, "mysql").sql == "SELECT b\n,c FROM t"


@pytest.mark.parametrize("kind", SERVERS)
def test_comments_never_reach_a_server_and_texts_arrive_as_they_are(kind: str) -> None:
    assert parse("SELECT 'a -- b /* c */ ''d''' -- e", kind).sql == "SELECT 'a -- b /* c */ ''d'''"


@pytest.mark.cases(
    ("kind", "sql", "said"),
    [
        ("postgresql", "SELECT 1; SELECT 2", "one statement"),
        ("postgresql", "SELECT FROM WHERE", "cannot be parsed at line 1, column"),
        ("postgresql", "SELECT 'open", "not closed"),
        ("postgresql", "SELECT a FROM t WHERE U&\"a\" = 1", "may not be used here"),
        ("postgresql", "SELECT $$x$$", "may not be used here"),
        ("mysql", "SELECT 1 /*!50000 + 1 */", "may not be used here"),
        ("mysql", "SELECT @a", "may not be used here"),
        ("postgresql", "", "read-only"),
        ("postgresql", " ; ", "read-only"),
        ("postgresql", "/* SELECT */ VACUUM", "read-only"),
        ("postgresql", "EXPLAIN ANALYZE UPDATE t SET a = 1", "read-only"),
        ("postgresql", "SELECT a FROM t FOR UPDATE", "no LOCK in it"),
        ("postgresql", "SELECT pg_sleap(1)", "the function pg_sleap may not be used here"),
        ("postgresql", "SELECT public.lower('x')", "the function lower may not"),
        ("postgresql", 'SELECT "lower" (1), "pg_sleep"(1)', "the function pg_sleep may not"),
        ("postgresql", "WITH f(a) AS (SELECT 1) SELECT f(1)", "the function f may not"),
        ("postgresql", "SELECT a FROM t WHERE b = :b", "not in parameters"),
        ("postgresql", "SELECT 1\0", "holds a NUL"),
        ("postgresql", "SELECT '" + "x" * MAX_SQL_CHARS + "'", "longer than"),
    ],
)  # fmt: skip
def test_a_refusal_says_why(kind: str, sql: str, said: str) -> None:
    assert said in refusal(sql, kind)


def bound(sql: str, parameters: Parameters, kind: str = "postgresql", marker: str = "%s") -> Statement:
    return parse(sql, kind, parameters=parameters, marker=marker)


def test_named_parameters_are_taken_from_where_they_stand() -> None:
    sql = "SELECT a::int, ':b', x[1:2] FROM t WHERE b = :b AND c LIKE '%z' AND d IN (:d,:b)"
    statement = bound(sql, {"b": 1, "d": "x"})
    assert statement.sql == "SELECT a::int, ':b', x[1:2] FROM t WHERE b = %s AND c LIKE '%%z' AND d IN (%s,%s)"
    assert statement.values == (1, "x", 1)


def test_parameters_by_place_keep_their_order() -> None:
    statement = bound("SELECT '?' FROM t WHERE a = ? AND b % 2 = ?", [3, 4])
    assert statement.sql == "SELECT '?' FROM t WHERE a = %s AND b %% 2 = %s"
    assert statement.values == (3, 4)
    assert bound("SELECT ?", ["x"], "duckdb", "?").sql == "SELECT ?"


def test_a_percent_sign_stays_one_where_nothing_is_bound() -> None:
    assert parse("SELECT 5 % 2", "mysql", marker="%s").sql == "SELECT 5 % 2"


def test_postgresqls_question_mark_is_an_operator_unless_parameters_have_places() -> None:
    assert bound("SELECT a FROM t WHERE b ? 'k' AND c = :c", {"c": 1}).sql.endswith("b ? 'k' AND c = %s")


def test_no_function_that_reads_elsewhere_waits_or_runs_text_is_known() -> None:
    harmful = """pg_read_file pg_sleep lo_import dblink current_setting set_config query_to_xml nextval load_file sleep
        benchmark get_lock read_csv read_parquet read_text glob getenv query query_table random setseed repeat space
        pg_advisory_lock pg_terminate_backend to_regclass release_lock master_pos_wait sys_exec readfile"""
    for names in (*FUNCTIONS.values(), GRAMMAR):
        assert not names & set(harmful.split())


KINDS = ("postgresql", "mysql", "duckdb")


def table(name: str, *columns: str, schema: str = "main", is_default: bool = True) -> Table:
    return Table(name, tuple((column, "INTEGER") for column in columns), (), (), schema, is_default)


TABLES = (
    table("customers", "id", "name", "email"),
    table("orders", "id", "customer_id", "total", "email"),
    table("order_totals", "customer_id", "total"),
    table("secrets", "id", "token"),
    table("all_secrets", "token"),
    table("salaries", "id", "pay", schema="hr", is_default=False),
)
SCOPE = Scope(tables=("customers", "orders", "order_totals"), columns=("customers.id", "customers.name"))


def catalog(kind: str, scope: Scope = SCOPE) -> TableCatalog:
    return narrow(TABLES, scope, kind)


def verdict(sql: str, kind: str, scope: Scope = SCOPE) -> str:
    """Empty for what may run, else what is said against it."""
    try:
        judge(parse(sql, kind).tree, catalog(kind, scope))
    except (Missing, ToolFailed) as error:
        return str(error)
    return ""


@pytest.mark.cases("kind", KINDS)
@pytest.mark.cases(
    "sql",
    [
        "SELECT id, name FROM customers",
        "SELECT c.name, o.email FROM customers AS c JOIN orders AS o ON o.customer_id = c.id",
        "SELECT o.* FROM orders o",
        "SELECT * FROM order_totals",
        "SELECT count(*) FROM customers",
        "SELECT * FROM (SELECT id, name FROM customers) AS x",
        "WITH x AS (SELECT id FROM customers), y AS (SELECT * FROM x) SELECT * FROM y JOIN x ON x.id = y.id",
        "SELECT name FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)",
        "SELECT name, (SELECT max(total) FROM orders WHERE customer_id = customers.id) AS best FROM customers",
        "SELECT name AS who, count(*) AS n FROM customers GROUP BY name ORDER BY n DESC, who",
        "SELECT upper(name) AS who FROM customers ORDER BY who",
        "SELECT id FROM customers UNION ALL SELECT total FROM orders ORDER BY 1",
        "SELECT x.email FROM (SELECT email FROM orders) AS x",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 9) SELECT n, name FROM c, customers",
        "SELECT id FROM customers JOIN (SELECT customer_id AS id FROM orders) o USING (id)",
        "WITH p AS (SELECT id, name AS n FROM customers), q AS (SELECT p.* FROM p) SELECT n FROM q ORDER BY n, id",
        "SELECT rank() OVER (PARTITION BY name ORDER BY id) FROM customers",
    ],
)
def test_what_may_be_read_is_read(sql: str, kind: str) -> None:
    assert verdict(sql, kind) == ""


@pytest.mark.cases("attack", SPIES, ids=lambda attack: attack.name)
def test_a_spy_is_refused_before_it_reaches_a_server(attack: Attack) -> None:
    for kind in set(attack.kinds) & set(KINDS):
        if attack.name != "explain":  # which the backend refuses wherever there is a scope
            assert verdict(attack.sql, kind), kind


@pytest.mark.cases("attack", SPIES, ids=lambda attack: attack.name)
def test_nothing_that_is_said_against_a_spy_names_what_it_did_not_name_itself(attack: Attack) -> None:
    for kind in set(attack.kinds) & set(KINDS):
        said = verdict(attack.sql, kind)
        for name in ("email", "secrets", "token", "salaries"):
            assert name not in said.lower() or name in attack.sql.lower()


@pytest.mark.cases(
    ("sql", "said"),
    [
        ("SELECT id FROM secrets", "no such table: secrets"),
        ("SELECT id FROM main.secrets", "no such table: main.secrets"),
        ("SELECT email FROM customers", "no such column: email"),
        ("SELECT c.email FROM customers c", "no such column: email"),
        ("SELECT * FROM customers", "not all columns of customers may be read: instead of * name some of: id, name"),
        ("WITH orders AS (SELECT 1) SELECT * FROM orders", "name the WITH otherwise: orders is a table"),
        ("SELECT c.id FROM customers c NATURAL JOIN orders", "join by ON with columns that may be read"),
    ],
)
def test_a_refusal_says_what_would_be_right(sql: str, said: str) -> None:
    assert verdict(sql, "postgresql") == said


def test_an_inner_hidden_column_is_not_taken_for_an_outer_visible_one() -> None:
    assert verdict("SELECT (SELECT email FROM customers LIMIT 1) FROM orders", "postgresql") == "no such column: email"


def test_a_with_is_known_only_after_it_stands() -> None:
    scope = Scope(tables=("customers", "orders"))
    assert verdict("WITH a AS (SELECT * FROM b), b AS (SELECT 1 AS x) SELECT * FROM a", "postgresql", scope)
    assert verdict("SELECT * FROM (WITH b AS (SELECT 1 AS x) SELECT * FROM b) q, b", "postgresql", scope)
    assert verdict("WITH b AS (SELECT 1 AS x), a AS (SELECT * FROM b) SELECT * FROM a", "postgresql", scope) == ""


def test_postgresql_folds_what_is_not_quoted_and_mysql_nothing() -> None:
    everything = Scope()
    assert verdict("SELECT ID FROM ORDERS", "postgresql", everything) == ""
    assert verdict('SELECT id FROM "ORDERS"', "postgresql", everything) == "no such table: ORDERS"
    assert verdict("SELECT id FROM ORDERS", "mysql", everything) == "no such table: ORDERS"
    assert verdict('SELECT id FROM "ORDERS"', "duckdb", everything) == ""


def test_another_schema_is_read_by_its_name_alone() -> None:
    everything = Scope()
    assert verdict("SELECT pay FROM hr.salaries", "postgresql", everything) == ""
    assert verdict("SELECT pay FROM salaries", "postgresql", everything) == "no such table: salaries"
    assert verdict("SELECT pay FROM x.hr.salaries", "postgresql", everything) == "no such table: x.hr.salaries"
    assert verdict("SELECT 1 FROM information_schema.tables", "postgresql", everything)
