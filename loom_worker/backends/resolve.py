"""Checks the tables and columns that a statement names against what its agent may see."""

import re
from itertools import takewhile

from sqlglot import exp
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope as Visible
from sqlglot.optimizer.scope import traverse_scope
from sqlglot.schema import MappingSchema

from loom_worker.backends.parse import DIALECTS, refused
from loom_worker.backends.schema import Table
from loom_worker.backends.scope import TableCatalog, fold


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
