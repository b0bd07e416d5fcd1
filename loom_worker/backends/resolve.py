"""Judges the tables and columns a statement names against what its agent may see."""

import re
from collections.abc import Iterator
from itertools import takewhile

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope as Visible
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema

from loom_worker.backends.parse import DIALECTS, refused
from loom_worker.backends.schema import Table
from loom_worker.backends.scope import Catalog, fold


class Missing(LookupError):
    """A table or column the agent cannot see, or that is not there at all: it cannot tell which.

    ``str()`` is ``no such table: x`` or ``no such column: x``.
    """


def judge(tree: exp.Expr, catalog: Catalog) -> None:
    """Let a statement pass if every table and column in it may be read.

    Raises:
        Missing: one is not among what may be read; the catalog may be older than the table.
        ToolFailed: it cannot be told what is read, or the name of a WITH is a table's.
    """
    for cte in tree.find_all(exp.CTE):
        if catalog.find(None, _name(cte.args["alias"].this, catalog)):
            raise refused(f"name the WITH otherwise: {cte.alias} is a table")
    used = {id(node): table for node in tree.find_all(exp.Table) if (table := _table(node, catalog))}
    restricted = [table for table in used.values() if catalog.out_of_sight(table)]
    if restricted:
        _only_plain_names(tree, used, restricted, catalog)
        if catalog.kind != "sqlite":  # its authorizer judges each column that is read, whatever it is called here
            _only_visible_columns(tree, catalog)


def _table(node: exp.Table, catalog: Catalog) -> Table | None:
    """The table a name stands for; None for functions, judged as such, and for what a WITH defines."""
    if isinstance(node.this, exp.Func):
        return None
    if not isinstance(node.this, exp.Identifier):
        raise refused(f"it cannot be told which table {node.sql()[:100]} is")
    schema, name = node.args.get("db"), _name(node.this, catalog)
    if schema is None and _is_defined(node, name, catalog):
        return None
    found = catalog.find(_name(schema, catalog) if schema else None, name)
    if found is None or node.args.get("catalog"):
        before = [part.name for part in node.parts[:-1]]
        raise Missing(f"no such table: {'.'.join((*before, name))}")
    return found


def _name(identifier: exp.Expr, catalog: Catalog) -> str:
    """The name as the database reads it: PostgreSQL folds what is not quoted."""
    is_folded = catalog.kind == "postgresql" and not identifier.args.get("quoted")
    return fold(identifier.name) if is_folded else identifier.name


def _is_defined(node: exp.Expr, name: str, catalog: Catalog) -> bool:
    """True if a WITH around the node defines the name; without RECURSIVE only for what comes after it."""
    inside: exp.Expr = node
    while (outside := inside.parent) is not None:
        block = outside if isinstance(outside, exp.With) else outside.args.get("with_")
        if block is not None and block is not inside and catalog.key(name) in _defined(block, inside, catalog):
            return True
        inside = outside
    return False


def _defined(block: exp.Expr, inside: exp.Expr, catalog: Catalog) -> set[str]:
    """Names that a WITH defines, as they are known in one of its own queries or in that which follows it."""
    ctes = block.expressions
    if not block.args.get("recursive"):
        ctes = list(takewhile(lambda cte: cte is not inside, ctes))
    return {catalog.key(_name(cte.args["alias"].this, catalog)) for cte in ctes}


def _only_plain_names(tree: exp.Expr, used: dict[int, Table], restricted: list[Table], catalog: Catalog) -> None:
    """Refuse all ways to mean a column without its plain name, where some columns may not be read."""
    hidden = frozenset(name for table in restricted for name in catalog.out_of_sight(table))
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            _refuse_star(star, used, restricted, catalog)
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


def _refuse_star(star: exp.Expr, used: dict[int, Table], restricted: list[Table], catalog: Catalog) -> None:
    select = star.find_ancestor(exp.Select)
    sources = _sources(select) if select else ()
    for table in (used[id(node)] for node in sources if id(node) in used):
        if table in restricted:
            names = ", ".join(name for name, _ in table.columns)
            raise refused(f"not all columns of {table.path} may be read: instead of * name some of: {names}")


def _sources(select: exp.Expr) -> Iterator[exp.Expr]:
    clauses = [select.args.get("from_"), *(select.args.get("joins") or ()), *(select.args.get("laterals") or ())]
    for clause in clauses:
        if clause is not None:
            yield from (node for node in clause.find_all(exp.Table) if node.find_ancestor(exp.Select) is select)


def _only_visible_columns(tree: exp.Expr, catalog: Catalog) -> None:
    """Resolve every column; what cannot be resolved for sure is refused."""
    dialect = DIALECTS[catalog.kind]
    try:
        resolved = qualify(
            tree.copy(),
            dialect=dialect,
            schema=_mapping(catalog),
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
            raise refused(f"it cannot be told which columns {each.sql(dialect)} stands for: name them as table.column")


def _mapping(catalog: Catalog) -> MappingSchema:
    """What may be read, as sqlglot wants it told."""
    mapping = MappingSchema(dialect=DIALECTS[catalog.kind])
    for table in catalog.tables:
        schema = None if table.is_default else exp.to_identifier(table.schema, quoted=True)
        quoted = exp.Table(this=exp.to_identifier(table.name, quoted=True), db=schema)
        mapping.add_table(quoted, {f'"{name}"': "unknown" for name, _ in table.columns}, match_depth=False)
    return mapping


def _is_harmless(column: exp.Expr) -> bool:
    """A star, which was judged before, or ORDER BY the name of a result's column."""
    if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
        return isinstance(column, exp.Column)
    order = column.find_ancestor(exp.Order)
    return not column.table and order is not None and column.name in _result_names(order)


def _result_names(order: exp.Expr) -> list[str]:
    query = order.find_ancestor(exp.Query)
    return query.named_selects if isinstance(query, exp.Query) else []


def _judge_column(column: exp.Column, visible: Visible, catalog: Catalog) -> None:
    names = getattr(visible.expression, "named_selects", ())
    if not column.table and column.name in names:
        return  # ORDER BY the name of a result's column; no hidden column has that name, see _only_plain_names
    around: Visible | None = visible
    while around is not None and column.table not in around.sources:
        around = around.parent
    if around is None:
        raise refused(f"it cannot be told which table {column.sql()} is of: write it as table.column")
    source = around.sources[column.table]
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        return
    schema = source.args.get("db")
    table = catalog.find(schema.name if schema else None, source.name)
    readable = {catalog.column_key(name) for name, _ in table.columns} if table else set()
    if catalog.column_key(column.name) not in readable:
        raise Missing(f"no such column: {column.name}")
