"""Parses the model's SQL into one statement that only reads: by sqlglot, in the database's own dialect.

What runs is put together from the very tokens that were judged, with only blanks between them: a comment or a Unicode
blank that the database would read differently never reaches it. Spellings that may end in different places for sqlglot
and the database (dollar quotes, U&"...", optimizer hints, user variables) are refused.
``judge`` then refuses tables and columns outside of the scope.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope as Visible
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema
from sqlglot.tokenizer_core import Token, TokenType

from loom_worker.backends.error_text import near
from loom_worker.backends.schema import Table, TableCatalog, fold
from loom_worker.backends.statements import ONE_AT_A_TIME, ONLY_READING, READING, Parameters, check_length, refused

_COMMON = """
    abs acos asin atan atan2 cbrt ceil ceiling cos cot degrees div exp floor greatest least ln log log10 log2 mod pi
    pow power radians round sign sin sqrt tan trunc truncate width_bucket bit_count
    ascii bit_length btrim char char_length character_length chr concat concat_ws format initcap instr left length
    locate lower lpad ltrim md5 octet_length overlay position replace reverse right rpad rtrim sha256 split_part
    starts_with strpos substr substring translate trim upper ucase lcase mid
    regexp_like regexp_replace regexp_substr regexp_instr regexp_matches regexp_count
    coalesce ifnull nullif nvl if cast try_cast convert
    avg count sum min max stddev stddev_pop stddev_samp variance var_pop var_samp corr covar_pop covar_samp
    regr_slope regr_intercept regr_r2 regr_count mode percentile_cont percentile_disc bool_and bool_or every bit_and
    bit_or bit_xor array_agg string_agg group_concat json_agg json_object_agg any_value
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value grouping
    now current_date current_time current_timestamp localtime localtimestamp date time timestamp year month day hour
    minute second quarter week dayofweek dayofmonth dayofyear weekday extract date_part date_trunc age last_day
    make_date make_time make_timestamp make_interval to_char to_date to_number to_timestamp
    json_object json_array json_extract json_array_length json_valid json_keys json_value
    unnest row array version current_database database
"""

_POSTGRESQL = """
    regexp_match regexp_split_to_array regexp_split_to_table string_to_array string_to_table array_to_string
    quote_literal array_length array_position array_positions array_append array_cat array_prepend array_remove
    array_replace array_ndims array_lower array_upper cardinality generate_series generate_subscripts json_build_object
    json_build_array jsonb_build_object jsonb_build_array jsonb_agg jsonb_object_agg to_json to_jsonb
    json_array_elements json_array_elements_text jsonb_array_elements jsonb_array_elements_text json_each json_each_text
    jsonb_each jsonb_each_text json_object_keys jsonb_object_keys jsonb_array_length json_typeof jsonb_typeof
    json_extract_path json_extract_path_text jsonb_extract_path jsonb_extract_path_text jsonb_path_exists
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_pretty jsonb_set jsonb_strip_nulls
    json_strip_nulls jsonb_exists jsonb_exists_any jsonb_exists_all row_to_json clock_timestamp statement_timestamp
    transaction_timestamp isfinite justify_days justify_hours justify_interval timezone date_bin date_add date_subtract
    to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline
    similarity word_similarity num_nulls num_nonnulls scale gcd lcm factorial encode decode to_hex lower_inc upper_inc
    isempty range_merge int4range int8range numrange daterange tsrange tstzrange
"""

_MYSQL = """
    adddate addtime date_add date_sub date_format datediff dayname monthname from_days from_unixtime makedate maketime
    period_add period_diff sec_to_time str_to_date subdate subtime time_format time_to_sec timediff timestampadd
    timestampdiff to_days to_seconds unix_timestamp utc_date utc_time utc_timestamp weekofyear yearweek curdate curtime
    sysdate convert_tz bin conv crc32 elt export_set field find_in_set hex isnull make_set oct ord quote rlike sha1 sha2
    soundex strcmp substring_index unhex isnumeric std json_arrayagg json_objectagg json_contains json_contains_path
    json_depth json_length json_merge_patch json_quote json_search json_type json_unquote json_table json_overlaps
    json_pretty member match against values
"""

_DUCKDB = """
    approx_count_distinct approx_quantile arg_max arg_min max_by min_by median quantile quantile_cont quantile_disc mad
    first last list histogram entropy kurtosis skewness product fsum favg count_if countif count_star sem
    array_contains array_distinct array_length array_slice array_sort list_aggregate list_concat list_contains
    list_count list_distinct list_element list_extract list_filter list_max list_min list_position list_reduce
    list_reverse list_slice list_sort list_sum list_transform list_value list_zip len flatten range generate_series
    struct_pack struct_extract map map_keys map_values map_entries element_at cardinality row_to_json to_json
    json_extract_string json_type json_structure json_group_array json_group_object json_transform
    contains prefix suffix ends_with string_split split str_split string_split_regex regexp_extract
    regexp_extract_all regexp_full_match regexp_split_to_array strip_accents levenshtein jaccard jaro_similarity
    jaro_winkler_similarity damerau_levenshtein hamming printf hash hex unhex bin ord unicode strlen
    array_to_string date_diff datediff date_add date_sub datepart dayname monthname epoch epoch_ms epoch_us isodow
    isoyear julian strftime strptime time_bucket today to_days to_hours to_minutes to_months to_seconds to_weeks
    to_years try_strptime weekofyear yearweek century decade dayofweek even factorial fmod gamma gcd lcm isfinite isinf
    isnan nextafter signbit typeof
"""

_STRUCTURE = """
    select from where and or not in exists as over partition by on using values with recursive filter group when then
    else case end having union all any some between like ilike similar to is distinct limit offset fetch join lateral
    cube rollup sets interval order except intersect cross inner left right full outer materialized within escape regexp
    rlike window rows qualify columns pivot unpivot for return returning xor binary collate div mod straight_join force
    use ignore index key first next only
"""
"""Words of the grammar itself that may stand before a bracket."""

_TYPES = """
    bigint binary bit blob bool boolean bpchar char character clob date datetime decimal double enum float int integer
    interval json jsonb list map nchar number numeric nvarchar precision real signed smallint struct text time timestamp
    timestamptz timetz tinyint unsigned varbinary varbit varchar varying uuid year zone
"""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


FUNCTIONS: Mapping[str, frozenset[str]] = {
    "postgres": _words(_COMMON, _POSTGRESQL),
    "mysqlansi": _words(_COMMON, _MYSQL),
    "duckdb": _words(_COMMON, _DUCKDB),
    "sqlite": frozenset(),
}
"""By sqlglot's name of the dialect, in lower case; SQLite's own authorizer judges its functions."""

GRAMMAR = _words(_STRUCTURE, _TYPES)
"""Words that are no functions and may stand before a bracket."""


class MySqlAnsi(MySQL):
    """MySQL with ``ANSI_QUOTES``, as ``servers`` sets it: what stands in double quotes is a name, never a text."""

    class Tokenizer(MySQL.Tokenizer):
        """Where names and texts end."""

        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`", '"']


DIALECTS: Mapping[str, str] = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "mysql": "mysqlansi",
    "mariadb": "mysqlansi",
    "duckdb": "duckdb",
}
"""sqlglot's name of each dialect, by the database's name in its URL."""

_EXPLAIN = re.compile(
    r"(?>\s+|--[^\n]*\n|/\*.*?\*/)*+EXPLAIN(?P<how>(?:\s+(?:QUERY\s+PLAN|ANALYZE|VERBOSE|EXTENDED|FORMAT\s*=\s*\w+))*)\s",
    re.IGNORECASE | re.DOTALL,
)
_UNCLEAR = frozenset(
    {
        TokenType.PARAMETER,
        TokenType.SESSION_PARAMETER,
        TokenType.HINT,
        TokenType.HEREDOC_STRING,
        TokenType.UNICODE_STRING,
        TokenType.BLOCK_START,
        TokenType.BLOCK_END,
    }
)
_NO_READING = (
    exp.DML,
    exp.DDL,
    exp.Command,
    exp.Into,
    exp.Lock,
    exp.Parameter,
    exp.SessionParameter,
    exp.NextValueFor,
    exp.Describe,
    exp.Show,
)
_FIRST = frozenset({*READING, "(", "FROM"})
_NAMES_AS_NUMBERS = frozenset(
    "regclass regproc regprocedure regoper regoperator regrole regnamespace regtype regconfig regdictionary "
    "regcollation".split()
)
"""PostgreSQL types that turn text or numbers into names of anything in the database."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that only reads; the tables it reads are yet to be judged."""

    tree: exp.Expr
    """A Query or Values; of an EXPLAIN, the statement to be explained."""
    sql: str
    """For the driver, with ``marker`` for each parameter."""
    values: tuple[object, ...]
    """For the markers, in order."""
    is_explain: bool


def parse(sql: str, kind: str, *, parameters: Parameters | None = None, marker: str = "?") -> Statement:
    """Parse one statement and refuse anything else.

    Args:
        kind: of database, a key of DIALECTS.
        parameters: a mapping for ``:name`` in the text, a sequence for ``?``.
        marker: how the driver marks a parameter: ``?``, or ``%s``, for which other percent signs are doubled.

    Raises:
        ToolFailed: the text cannot be parsed, is more than one statement, does anything but read, or calls a function
            that is not known to be harmless.
    """
    check_length(sql)
    dialect = DIALECTS[kind]
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    tokens = _tokens(body, dialect)
    values, positions = _parameters(tokens, parameters)
    tree = _reading_tree(_text(body, tokens, dict.fromkeys(positions, "?")), dialect, parameters=len(values))
    if kind != "sqlite":
        _only_known_functions(tokens, tree, dialect)
    is_escaped = bool(values) and marker == "%s"
    text = _text(body, tokens, dict.fromkeys(positions, marker), is_escaped=is_escaped)
    prefix = f"EXPLAIN{explain['how']} " if explain else ""
    return Statement(tree, prefix + text, values, explain is not None)


def _tokens(sql: str, dialect: str) -> list[Token]:
    try:
        tokens = list(sqlglot.tokenize(sql, dialect=dialect))
    except TokenError as error:
        raise refused(f"the SQL cannot be parsed: a quote or comment is not closed: {str(error)[:200]}") from error
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens or tokens[0].text.upper() not in _FIRST:
        raise refused(ONLY_READING)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise refused(ONE_AT_A_TIME)
        if token.token_type in _UNCLEAR or fold(token.text) in _NAMES_AS_NUMBERS:
            raise refused(f"{sql[token.start : token.end + 1][:50]!r} may not be used here")
    if unclear := re.search(r"U&['\"]|/\*M?!", sql, re.IGNORECASE):
        raise refused(f"{unclear.group()!r} may not be used here, not even inside a text")
    return tokens


def _parameters(tokens: Sequence[Token], parameters: Parameters | None) -> tuple[tuple[object, ...], list[int]]:
    """Values in the order of the statement, and the indexes of their tokens (of a name: the token after the colon)."""
    if parameters is None:
        return (), []
    if not isinstance(parameters, Mapping):
        positions = [at for at, token in enumerate(tokens) if token.token_type == TokenType.PLACEHOLDER]
        if len(positions) != len(parameters):
            raise refused(f"the SQL has {len(positions)} times ?, but there are {len(parameters)} parameters")
        return tuple(parameters), positions
    positions = []
    for at, (colon, name) in enumerate(pairwise(tokens)):
        is_named = colon.token_type == TokenType.COLON and colon.end + 1 == name.start and name.text in parameters
        if is_named and not (at and tokens[at - 1].token_type == TokenType.L_BRACKET):
            positions.append(at + 1)
    if unused := sorted(set(parameters) - {tokens[at].text for at in positions}):
        raise refused(f"no parameter of the SQL is called :{unused[0]}")
    return tuple(parameters[tokens[at].text] for at in positions), positions


def _text(sql: str, tokens: Sequence[Token], markers: Mapping[int, str], *, is_escaped: bool = False) -> str:
    """The tokens as they were written, with blanks where anything stood between them, and markers for parameters."""
    parts: list[str] = []
    end = tokens[0].start
    for at, token in enumerate(tokens):
        gap = sql[end : token.start]
        parts.append(("\n" if "\n" in gap else " ") if gap else "")
        if at in markers and token.token_type != TokenType.PLACEHOLDER:
            parts.pop()
            parts.pop()  # the colon
        written = sql[token.start : token.end + 1]
        parts.append(markers.get(at, written.replace("%", "%%") if is_escaped else written))
        end = token.end + 1
    return "".join(parts)


def _reading_tree(sql: str, dialect: str, *, parameters: int) -> exp.Expr:
    """The one tree of the text, if it does nothing but read and has no more than these parameters."""
    try:
        trees = sqlglot.parse(sql, dialect=dialect)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near_by = f"{first.get('start_context', '')}{first.get('highlight', '')}"[-40:]
        where = f"line {first.get('line')}, column {first.get('col')}"
        raise refused(f"the SQL cannot be parsed at {where}: {first.get('description')} near {near_by!r}") from error
    except (TokenError, RecursionError) as error:
        raise refused("the SQL cannot be parsed: it is nested too deeply or not closed") from error
    if len(trees) != 1 or trees[0] is None:
        raise refused(ONE_AT_A_TIME)
    tree = trees[0]
    bodies = [tree, *(cte.this for cte in tree.find_all(exp.CTE))]
    writing = next(tree.find_all(*_NO_READING), None)
    if writing is not None or not all(isinstance(body, (exp.Query, exp.Values)) for body in bodies):
        what = f", and no {writing.key.upper()} in it" if writing is not None else ""
        raise refused(ONLY_READING + what)
    if len(list(tree.find_all(exp.Placeholder))) > parameters:
        raise refused("the SQL has a parameter (? or :name) whose value is not in parameters")
    return tree


def _only_known_functions(tokens: Sequence[Token], tree: exp.Expr, dialect: str) -> None:
    """Judge every word before a bracket as it is written, whatever sqlglot took it for."""
    known = FUNCTIONS[dialect]
    named = [fold(alias.name) for alias in tree.find_all(exp.TableAlias) if alias.columns]
    for at, token in enumerate(tokens[:-1]):
        word = fold(token.text)
        if tokens[at + 1].token_type != TokenType.L_PAREN or not _is_word(token):
            continue
        if word in named:  # WITH name(a, b) AS, FROM t AS name(a, b): once for each that is defined
            named.remove(word)
            continue
        is_quoted = token.token_type == TokenType.IDENTIFIER
        is_qualified = at > 0 and tokens[at - 1].token_type == TokenType.DOT
        if is_qualified or not (word in known or (word in GRAMMAR and not is_quoted)):
            likely = ", ".join(near(word, known)[:3])
            raise refused(
                f"the function {token.text[:60]} may not be used here; there are {likely} and other usual ones"
            )


def _is_word(token: Token) -> bool:
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text[:1].isalpha() or token.text[:1] in ("_", "$")


class Missing(LookupError):
    """The agent may not see a table or column, or there is none; the agent cannot tell which.

    ``str()`` is ``no such table: x`` or ``no such column: x``.
    """


def judge(tree: exp.Expr, catalog: TableCatalog) -> None:
    """Check that every table and column in a statement may be read.

    Raises:
        Missing: one may not be read; the catalog may be older than the table.
        ToolFailed: what is read cannot be determined, or a WITH has the name of a table.
    """
    for cte in tree.find_all(exp.CTE):
        if catalog.find(None, _name(cte.args["alias"].this, catalog)):
            raise refused(f"name the WITH otherwise: {cte.alias} is a table")
    used = {id(node): table for node in tree.find_all(exp.Table) if (table := _table(node, catalog))}
    restricted = [table for table in used.values() if catalog.hidden_columns(table)]
    if restricted:
        _only_plain_names(tree, used, restricted, catalog)
        if catalog.kind != "sqlite":  # its authorizer judges each column that is read, whatever it is called here
            _only_visible_columns(tree, catalog)


def _table(node: exp.Table, catalog: TableCatalog) -> Table | None:
    """The table a name stands for; None for functions, which are judged as such, and for what a WITH defines."""
    if isinstance(node.this, exp.Func):
        return None
    if not isinstance(node.this, exp.Identifier):
        raise refused(f"it is unclear which table {node.sql()[:100]} is")
    schema, name = node.args.get("db"), _name(node.this, catalog)
    if schema is None and _is_defined(node, name, catalog):
        return None
    found = catalog.find(_name(schema, catalog) if schema else None, name)
    if found is None or node.args.get("catalog"):
        before = [part.name for part in node.parts[:-1]]
        raise Missing(f"no such table: {'.'.join((*before, name))}")
    return found


def _name(identifier: exp.Expr, catalog: TableCatalog) -> str:
    """The name as the database reads it: PostgreSQL folds what is not quoted."""
    is_folded = catalog.kind == "postgresql" and not identifier.args.get("quoted")
    return fold(identifier.name) if is_folded else identifier.name


def _is_defined(node: exp.Expr, name: str, catalog: TableCatalog) -> bool:
    """True if a WITH around the node defines the name; without RECURSIVE only for what comes after it."""
    inside: exp.Expr = node
    while (outside := inside.parent) is not None:
        block = outside if isinstance(outside, exp.With) else outside.args.get("with_")
        if block is not None and block is not inside and catalog.key(name) in _defined(block, inside, catalog):
            return True
        inside = outside
    return False


def _defined(block: exp.Expr, inside: exp.Expr, catalog: TableCatalog) -> set[str]:
    """Names that a WITH defines, as known inside one of its own queries or in the query that follows it."""
    ctes = block.expressions
    if not block.args.get("recursive"):
        ctes = list(takewhile(lambda cte: cte is not inside, ctes))
    return {catalog.key(_name(cte.args["alias"].this, catalog)) for cte in ctes}


def _only_plain_names(tree: exp.Expr, used: dict[int, Table], restricted: list[Table], catalog: TableCatalog) -> None:
    """Where some columns may not be read, refuse every way to refer to a column without its plain name."""
    hidden = frozenset(name for table in restricted for name in catalog.hidden_columns(table))
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            _refuse_star(star, used, restricted)
    for node in tree.find_all(exp.Join, exp.Table, exp.Subquery, exp.Columns, exp.Pivot, exp.Column):
        match node:
            case exp.Join():
                names = {catalog.column_key(_name(each, catalog)) for each in node.args.get("using") or ()}
                if node.method == "NATURAL" or names & hidden:
                    raise refused("join by ON with columns that may be read")
            case exp.Table() if id(node) in used and used[id(node)] in restricted and node.alias_column_names:
                raise refused(f"{used[id(node)].path} cannot be given other names for its columns here")
            case exp.Subquery() if isinstance(node.this, exp.Table):
                raise refused("a join in brackets cannot be judged: write it without")
            case exp.Columns() | exp.Pivot():
                raise refused(f"{node.key.upper()} cannot be used where not all columns may be read")
            case exp.Column() if not node.table and catalog.column_key(_name(node.this, catalog)) in hidden:
                raise Missing(f"no such column: {node.name}")


def _refuse_star(star: exp.Expr, used: dict[int, Table], restricted: list[Table]) -> None:
    select = star.find_ancestor(exp.Select)
    if select is None:
        return
    clauses = [select.args.get("from_"), *(select.args.get("joins") or ()), *(select.args.get("laterals") or ())]
    for node in (node for clause in clauses if clause is not None for node in clause.find_all(exp.Table)):
        table = used.get(id(node))
        if table in restricted and node.find_ancestor(exp.Select) is select:
            names = ", ".join(name for name, _ in table.columns)
            raise refused(f"not all columns of {table.path} may be read: instead of * name some of: {names}")


def _only_visible_columns(tree: exp.Expr, catalog: TableCatalog) -> None:
    """Resolve every column; what cannot be resolved for sure is refused."""
    dialect = DIALECTS[catalog.kind]
    schema = MappingSchema(dialect=dialect)
    for table in catalog.tables:
        db = None if table.is_default else exp.to_identifier(table.schema, quoted=True)
        quoted = exp.Table(this=exp.to_identifier(table.name, quoted=True), db=db)
        schema.add_table(quoted, {f'"{name}"': "unknown" for name, _ in table.columns}, match_depth=False)
    try:
        resolved = qualify(
            tree.copy(),
            dialect=dialect,
            schema=schema,
            expand_stars=True,
            quote_identifiers=False,
            identify=False,
            isolate_tables=False,
        )
    except OptimizeError as error:
        if found := re.match(r"(?:Unknown column: |Column ')(\S+?)(?:'|$)", str(error)):
            raise Missing(f"no such column: {found[1]}") from error
        raise refused(f"{error}; where not all columns may be read, each is named plainly, as table.column") from error
    seen: set[int] = set()
    for visible in traverse_scope(resolved):
        for column in visible.columns:
            _judge_column(column, visible, catalog)
            seen.add(id(column))
    for each in resolved.find_all(exp.Column, exp.TableColumn):
        if id(each) not in seen and not _is_harmless(each):
            raise refused(f"it is unclear which columns {each.sql(dialect)} stands for: name them as table.column")


def _is_harmless(column: exp.Expr) -> bool:
    """True for a star, which was judged before, and for ORDER BY the name of a result's column."""
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        return isinstance(column, exp.Column)
    order = column.find_ancestor(exp.Order)
    query = order.find_ancestor(exp.Query) if order is not None else None
    return not column.table and isinstance(query, exp.Query) and column.name in query.named_selects


def _judge_column(column: exp.Column, visible: Visible, catalog: TableCatalog) -> None:
    names = getattr(visible.expression, "named_selects", ())
    if not column.table and column.name in names:
        return  # ORDER BY the name of a result's column; no hidden column has that name, see _only_plain_names
    around: Visible | None = visible
    while around is not None and column.table not in around.sources:
        around = around.parent
    if around is None:
        raise refused(f"it is unclear which table {column.sql()} belongs to: write it as table.column")
    source = around.sources[column.table]
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        return
    schema = source.args.get("db")
    table = catalog.find(schema.name if schema else None, source.name)
    readable = {catalog.column_key(name) for name, _ in table.columns} if table else set()
    if catalog.column_key(column.name) not in readable:
        raise Missing(f"no such column: {column.name}")
