import pytest

from loom_worker.backends.functions import FUNCTIONS, GRAMMAR
from loom_worker.backends.parse import Statement, parse
from loom_worker.backends.statements import MAX_SQL_CHARS, Parameters
from loom_worker.core.errors import ToolFailed
from tests.support.sql_attacks import CALLS, WRITES, Attack

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
