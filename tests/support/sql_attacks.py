"""Statements that try to write, to escape, to spy or to stay; each with the databases it is meant for.

The tables are those of ``sql_world``: of them an agent may read orders, order_totals and the columns id and name of
customers. CANARY stands in everything else.
"""

from dataclasses import dataclass

CANARY = "CANARY-7f3a"
SERVERS = ("postgresql", "mysql")
ALL = ("sqlite", "duckdb", *SERVERS)


@dataclass(frozen=True, slots=True)
class Attack:
    """A statement, and what it is after."""

    name: str
    sql: str
    kinds: tuple[str, ...] = ALL
    is_bomb: bool = False
    """True: it reads what it may, but without end, so time or memory must stop it."""


def _only(*kinds: str) -> tuple[str, ...]:
    return kinds


PG, MY, DU, LI = _only("postgresql"), _only("mysql"), _only("duckdb"), _only("sqlite")

WRITES = (
    Attack("insert", "INSERT INTO orders VALUES (9, 1, 1)"),
    Attack("update", "UPDATE customers SET name = 'x'"),
    Attack("delete", "DELETE FROM orders"),
    Attack("drop", "DROP TABLE orders"),
    Attack("truncate", "TRUNCATE TABLE orders", ("duckdb", *SERVERS)),
    Attack("create", "CREATE TABLE stolen AS SELECT 1 AS a"),
    Attack("temporary table", "CREATE TEMPORARY TABLE stolen AS SELECT 1 AS a"),
    Attack("merge", "MERGE INTO orders o USING customers c ON o.id = c.id WHEN MATCHED THEN DELETE", PG),
    Attack("delete in a WITH", "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x", PG),
    Attack("insert in a WITH", "WITH x AS (INSERT INTO orders VALUES (9, 1, 1) RETURNING id) SELECT id FROM x", PG),
    Attack("WITH before a delete", "WITH x AS (SELECT 1 AS a) DELETE FROM orders WHERE id IN (SELECT a FROM x)"),
    Attack("select into", "SELECT id INTO stolen FROM orders", PG),
    Attack("explain analyze of a delete", "EXPLAIN ANALYZE DELETE FROM orders", ("postgresql", "duckdb")),
    Attack("copy to a program", "COPY orders TO PROGRAM 'cat > /tmp/loom-stolen'", PG),
    Attack("copy to a file", "COPY orders TO '/tmp/loom-stolen'", ("postgresql", "duckdb")),
    Attack("into outfile", "SELECT id FROM orders INTO OUTFILE 'loom-stolen'", MY),
    Attack("into dumpfile", "SELECT id FROM orders LIMIT 1 INTO DUMPFILE 'loom-stolen-too'", MY),
    Attack("into a variable", "SELECT id INTO @x FROM orders LIMIT 1", MY),
    Attack("a code block", "DO $$ BEGIN DELETE FROM orders; END $$", PG),
    Attack("call", "CALL sys.table_exists('shop', 'orders', @x)", MY),
    Attack("grant", "GRANT ALL ON orders TO PUBLIC", PG),
    Attack("set", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", PG),
    Attack("attach", "ATTACH 'stolen.db' AS other", ("sqlite", "duckdb")),
    Attack("vacuum into", "VACUUM INTO 'stolen.db'", LI),
    Attack("writable schema", "PRAGMA writable_schema = ON", LI),
    Attack("load", "INSTALL httpfs", DU),
    Attack("export", "EXPORT DATABASE 'stolen'", DU),
    Attack("load data", "LOAD DATA INFILE '/etc/passwd' INTO TABLE orders", MY),
    Attack("lock", "SELECT id FROM orders FOR UPDATE", SERVERS),
    Attack("share lock", "SELECT id FROM orders LOCK IN SHARE MODE", MY),
    Attack("handler", "HANDLER secrets OPEN", MY),
    Attack("prepared", "PREPARE p AS DELETE FROM orders", ("postgresql", "duckdb")),
)

TRICKS = (
    Attack("a second statement", "SELECT 1; DELETE FROM orders"),
    Attack("a second statement behind a comment", "SELECT 1 -- ;\n; DELETE FROM orders"),
    Attack("a backslash that quotes nothing", r"SELECT '\'; DELETE FROM orders; -- '"),
    Attack("a backslash that quotes", r"SELECT '\' || (SELECT max(token) FROM secrets) || ' '"),
    Attack("a backslash in E''", r"SELECT E'\'', (SELECT max(token) FROM secrets) --'", PG),
    Attack("an executable comment", "SELECT 1 /*!50000 UNION SELECT token FROM secrets */", MY),
    Attack("MariaDB's executable comment", "SELECT 1 /*M! UNION SELECT token FROM secrets */", MY),
    Attack("an executable comment as a blank", "SELECT/*!99999 1 */token FROM secrets", MY),
    Attack("nested comments", "SELECT 1 /* /* */ UNION SELECT token FROM secrets -- */ */"),
    Attack("a comment that is none", "SELECT id FROM orders WHERE id = 1 --1 UNION SELECT token FROM secrets\n+ 0", MY),
    Attack("a hash", "SELECT 1 # \n UNION SELECT token FROM secrets"),
    Attack("dollar quotes", "SELECT $a$ ' $a$, (SELECT max(token) FROM secrets) --'", PG),
    Attack("dollar quotes of another alphabet", "SELECT $é$ ' $é$, (SELECT max(token) FROM secrets) --'", PG),
    Attack("an escaped name", r'SELECT token FROM U&"secr\0065ts"', PG),
    Attack("an escaped name of one's own sign", "SELECT token FROM U&\"secr!0065ts\" UESCAPE '!'", PG),
    Attack("a Kelvin sign", "SELECT to\u212aen FROM secrets"),
    Attack("a long s", "SELECT token FROM \u017fecrets"),
    Attack("a blank that is none", "SELECT\u00a0token\u3000FROM\u00a0secrets"),
    Attack("ANSI quotes", 'SELECT "a", (SELECT max(token) FROM secrets) AS "b"'),
    Attack("an optimizer's hint", "SELECT /*+ SET_VAR(max_execution_time=0) */ token FROM secrets", MY),
    Attack("a charset's introducer", r"SELECT _gbk'\xbf\' UNION SELECT token FROM secrets -- '", MY),
)

SPIES = (
    Attack("another table", "SELECT token FROM secrets"),
    Attack("a quoted table", 'SELECT token FROM "secrets"', ("sqlite", "duckdb", "postgresql")),
    Attack("a table in other case", "SELECT TOKEN FROM SeCrEtS"),
    Attack("a backquoted table", "SELECT token FROM `secrets`", ("sqlite", "mysql")),
    Attack("a bracketed table", "SELECT token FROM [secrets]", LI),
    Attack("by its schema", "SELECT token FROM main.secrets", ("sqlite", "duckdb")),
    Attack("by PostgreSQL's schema", "SELECT token FROM public.secrets", PG),
    Attack("by its database", "SELECT token FROM shop.secrets", MY),
    Attack("another schema", "SELECT pay FROM hr.salaries", ("duckdb", *SERVERS)),
    Attack("three names", "SELECT token FROM postgres.public.secrets", PG),
    Attack("a view out of scope", "SELECT * FROM all_secrets"),
    Attack("a subquery", "SELECT (SELECT max(token) FROM secrets) FROM orders"),
    Attack("a derived table", "SELECT * FROM (SELECT token AS id FROM secrets) AS orders"),
    Attack("a join", "SELECT o.id FROM orders o JOIN secrets AS customers ON customers.id = o.id"),
    Attack("exists", "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM secrets WHERE token LIKE 'C%')"),
    Attack("a union", "SELECT name FROM customers UNION ALL SELECT token FROM secrets"),
    Attack("a WITH by the name of a table", "WITH orders AS (SELECT token FROM secrets) SELECT * FROM orders"),
    Attack("a WITH by the name of a view", "WITH order_totals AS (SELECT * FROM secrets) SELECT * FROM order_totals"),
    Attack("a WITH by its own name", "WITH secrets AS (SELECT * FROM secrets) SELECT * FROM secrets"),
    Attack("a WITH of an inner query", "SELECT (WITH secrets AS (SELECT 1) SELECT 1), token FROM secrets"),
    Attack("TABLE", "TABLE secrets", ("duckdb", *SERVERS)),
    Attack("FROM first", "FROM secrets", DU),
    Attack("IN a table", "SELECT id FROM orders WHERE 'x' IN secrets", LI),
    Attack("lateral", "SELECT x.token FROM orders o, LATERAL (SELECT token FROM secrets) x", ("duckdb", "postgresql")),
    Attack("a hidden column", "SELECT email FROM customers"),
    Attack("a hidden column with its table", "SELECT c.email FROM customers AS c"),
    Attack("a quoted hidden column", 'SELECT "email" FROM customers', ("sqlite", "duckdb", "postgresql")),
    Attack("a star", "SELECT * FROM customers"),
    Attack("a table's star", "SELECT c.* FROM customers c JOIN orders o ON o.customer_id = c.id"),
    Attack("a star in a subquery", "SELECT x.email FROM (SELECT * FROM customers) x"),
    Attack("a star of a join in brackets", "SELECT * FROM (customers c JOIN orders o ON true) AS x"),
    Attack("a hidden column in WHERE", "SELECT id FROM customers WHERE email LIKE 'C%'"),
    Attack("a hidden column in ORDER BY", "SELECT id FROM customers ORDER BY email"),
    Attack("a hidden column in GROUP BY", "SELECT count(*) AS email FROM customers GROUP BY email"),
    Attack("a hidden column in HAVING", "SELECT 1 FROM customers HAVING max(email) > 'C'"),
    Attack("a hidden column in a window", "SELECT rank() OVER (ORDER BY email) FROM customers"),
    Attack("a hidden column in an outer query", "SELECT (SELECT email) FROM customers"),
    Attack("a hidden column by USING", "SELECT c.id FROM customers c JOIN customers d USING (email)"),
    Attack("a natural join", "SELECT c.id FROM customers c NATURAL JOIN (SELECT 'x' AS email) d"),
    Attack("other names for columns", "SELECT x.name FROM customers AS x (id, b, name)", ("duckdb", "postgresql")),
    Attack("a row", "SELECT c FROM customers c", ("duckdb", "postgresql")),
    Attack("a row as JSON", "SELECT row_to_json(c) FROM customers c", ("duckdb", "postgresql")),
    Attack("a row as text", "SELECT CAST(c AS text) FROM customers c", ("duckdb", "postgresql")),
    Attack("a field of a row", "SELECT (c).email FROM customers c", ("duckdb", "postgresql")),
    Attack("a column as a function", "SELECT email(c) FROM customers c", PG),
    Attack("columns by pattern", "SELECT COLUMNS('.*') FROM customers", DU),
    Attack("unpivot", "SELECT * FROM (SELECT id, name FROM customers) UNPIVOT (v FOR k IN (email))", DU),
    Attack("the catalogue", "SELECT sql FROM sqlite_master", LI),
    Attack("the catalogue by another name", "SELECT sql FROM main.sqlite_schema", LI),
    Attack("a pragma as a table", "SELECT * FROM pragma_table_info('secrets')", LI),
    Attack("information_schema", "SELECT table_name FROM information_schema.tables", ("duckdb", *SERVERS)),
    Attack("columns of all", "SELECT column_name FROM INFORMATION_SCHEMA.COLUMNS", ("duckdb", *SERVERS)),
    Attack("pg_catalog", "SELECT relname FROM pg_catalog.pg_class", PG),
    Attack("pg_catalog without its name", "SELECT usename, passwd FROM pg_shadow", PG),
    Attack("statistics", "SELECT most_common_vals FROM pg_stats", PG),
    Attack("what others run", "SELECT query FROM pg_stat_activity", PG),
    Attack("a name from a number", "SELECT 16384::regclass", PG),
    Attack("a quoted type", "SELECT 'secrets'::\"regclass\"", PG),
    Attack("users", "SELECT user, authentication_string FROM mysql.user", MY),
    Attack("DuckDB's tables", "SELECT * FROM duckdb_tables()", DU),
    Attack("explain", "EXPLAIN SELECT * FROM order_totals"),
    Attack("show", "SHOW TABLES", ("duckdb", *SERVERS)),
    Attack("describe", "DESCRIBE secrets", ("duckdb", *SERVERS)),
    Attack("summarize", "SUMMARIZE secrets", DU),
)

CALLS = (
    Attack("read a file", "SELECT pg_read_file('/etc/passwd')", PG),
    Attack("read a file by its schema", "SELECT pg_catalog.pg_read_file('/etc/passwd')", PG),
    Attack("read a file by a quoted name", "SELECT \"pg_read_file\"('/etc/passwd')", PG),
    Attack("read a file, a comment between", "SELECT pg_read_file/* */('/etc/passwd')", PG),
    Attack("list a folder", "SELECT pg_ls_dir('/')", PG),
    Attack("a large object", "SELECT lo_import('/etc/passwd')", PG),
    Attack("a large object out", "SELECT lo_export(1, '/tmp/loom-stolen')", PG),
    Attack("sleep", "SELECT pg_sleep(30)", PG),
    Attack("sleep under a WITH's name", "WITH pg_sleep(n) AS (SELECT 1) SELECT pg_sleep(30) FROM pg_sleep", PG),
    Attack("sleep as a table", "SELECT * FROM orders, pg_sleep(30)", PG),
    Attack("a setting", "SELECT set_config('transaction_read_only', 'off', false)", PG),
    Attack("read a setting", "SELECT current_setting('data_directory')", PG),
    Attack("a lock", "SELECT pg_advisory_lock(1)", PG),
    Attack("end others", "SELECT pg_terminate_backend(1)", PG),
    Attack("text as SQL", "SELECT query_to_xml('SELECT * FROM secrets', true, true, '')", PG),
    Attack("a table as XML", "SELECT table_to_xml('secrets', true, true, '')", PG),
    Attack("a sequence", "SELECT nextval('numbers')", PG),
    Attack("another server", "SELECT * FROM dblink('host=127.0.0.1', 'SELECT 1') AS (a int)", PG),
    Attack("a table's definition", "SELECT pg_get_viewdef('all_secrets')", PG),
    Attack("an operator by name", "SELECT 1 OPERATOR(pg_catalog.+) 1", PG),
    Attack("read a file in MySQL", "SELECT LOAD_FILE('/etc/passwd')", MY),
    Attack("sleep in MySQL", "SELECT SLEEP(30)", MY),
    Attack("sleep by a backquoted name", "SELECT `SLEEP`(30)", MY),
    Attack("benchmark", "SELECT BENCHMARK(1000000000, MD5('x'))", MY),
    Attack("a named lock", "SELECT GET_LOCK('a', 30)", MY),
    Attack("a variable", "SELECT @@datadir", MY),
    Attack("set a variable", "SELECT @a := 1", MY),
    Attack("a sequence in MariaDB", "SELECT NEXT VALUE FOR numbers", MY),
    Attack("procedure analyse", "SELECT id FROM orders PROCEDURE ANALYSE()", MY),
    Attack("read CSV", "SELECT * FROM read_csv('/etc/passwd')", DU),
    Attack("read text", "SELECT * FROM read_text('/etc/passwd')", DU),
    Attack("read Parquet", "SELECT * FROM parquet_scan('https://example.com/x')", DU),
    Attack("a file as a table", "SELECT * FROM '/etc/passwd'", DU),
    Attack("list files", "SELECT * FROM glob('/etc/*')", DU),
    Attack("the environment", "SELECT getenv('HOME')", DU),
    Attack("secrets of DuckDB", "SELECT * FROM duckdb_secrets()", DU),
    Attack("text as a query", "SELECT * FROM query('SELECT * FROM secrets')", DU),
    Attack("text as a table", "SELECT * FROM query_table('secrets')", DU),
    Attack("a variable of Python's", "SELECT * FROM CANARY", DU),
    Attack("load an extension", "SELECT load_extension('x')", LI),
    Attack("read a file in SQLite", "SELECT readfile('/etc/passwd')", LI),
)

_COUNTING = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c"
_DOUBLING = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT c.n + 1 FROM c, orders) SELECT count(*) FROM c"
_SERIES = "SELECT count(*) FROM generate_series(1, 100000000000) AS g(v) WHERE v % 7 = 3"
_MATCHING = (
    "SELECT count(*) FROM generate_series(1, 10000000) AS g(v) "
    "WHERE rpad(CAST(v AS text), 900, 'ab') ~ '(a|b|ab)*(c|d)(.)[0-9]$'"
)
_NAMES = [*"abcdefghijklm"]
_PRODUCT = f"SELECT sum({' * '.join(f'{x}.id' for x in _NAMES)}) FROM {', '.join(f'orders {x}' for x in _NAMES)}"

BOMBS = (
    Attack("a recursion without end", _COUNTING, ("sqlite", "duckdb", "postgresql"), is_bomb=True),
    Attack("a recursion that grows", _DOUBLING, ("sqlite", "duckdb", "postgresql"), is_bomb=True),
    Attack("a product of tables", _PRODUCT, is_bomb=True),
    Attack("a long series", _SERIES, PG, is_bomb=True),
    Attack("a long range", "SELECT sum(hash(v)) FROM range(100000000000) AS g(v)", DU, is_bomb=True),
    Attack("a regular expression", _MATCHING, PG, is_bomb=True),
    Attack("deep brackets", "SELECT " + "(" * 3000 + "1" + ")" * 3000),
    Attack("deep subqueries", "SELECT " + "(SELECT " * 1500 + "1" + ")" * 1500),
    Attack("a very long statement", "SELECT '" + "x" * 30_000 + "'"),
)  # fmt: skip

ATTACKS = (*WRITES, *TRICKS, *SPIES, *CALLS, *BOMBS)
