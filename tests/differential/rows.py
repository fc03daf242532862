"""Random statements that change rows: INSERT in all forms, UPDATE, DELETE, MERGE, and writes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.differential.schemas import Column, TableShape
from tests.differential.steps import (
    ApiDelete,
    ApiMerge,
    ApiUpdate,
    Call,
    Clause,
    FrameWrite,
    Pairs,
)
from tests.differential.values import is_nested, literal, of_type

RandomStatement = tuple[str, Call | None, Pairs]
_COMPARISONS = ("=", "<>", "<", ">=", "<=>")
_DYNAMIC = (("spark.sql.sources.partitionOverwriteMode", "dynamic"),)
_EVOLVING = (("spark.databricks.delta.schema.autoMerge.enabled", "true"),)


def condition(rng: Random, columns: tuple[Column, ...], prefix: str = "") -> str:
    """Return a condition over columns that can be compared."""
    able = [one for one in columns if not is_nested(one.type)]
    if not able:
        return "true"
    one = rng.choice(able)
    name = prefix + one.quoted
    match rng.randrange(10):
        case 0:
            return f"{name} IS {rng.choice(('', 'NOT '))}NULL"
        case 1:
            return f"{name} IN ({of_type(rng, one.type)}, {of_type(rng, one.type)})"
        case 2:
            connective = rng.choice(("AND", "OR"))
            left, right = (condition(rng, columns, prefix) for _ in range(2))
            return f"({left}) {connective} ({right})"
        case 3:
            return f"NOT ({condition(rng, columns, prefix)})"
        case 4:
            return rng.choice(("true", "false", "CAST(NULL AS BOOLEAN)"))
        case _:
            return f"{name} {rng.choice(_COMPARISONS)} {of_type(rng, one.type)}"


def values(rng: Random, columns: tuple[Column, ...], *, defaults: bool = True) -> str:
    """Return VALUES with one to four rows."""
    rows = []
    for _ in range(rng.randint(1, 4)):
        cells = [literal(rng, one.type, is_nullable=one.is_nullable) for one in columns]
        if defaults and rng.random() < 0.08:
            cells[rng.randrange(len(cells))] = "DEFAULT"
        if rng.random() < 0.1 and columns[0].type in ("INT", "BIGINT"):
            cells[0] = f"{rng.randint(0, 5)} + 1"
        rows.append(f"({', '.join(cells)})")
    return f"VALUES {', '.join(rows)}"


def query(rng: Random, columns: tuple[Column, ...], names: list[str] | None = None) -> str:
    """Return a query with rows of these columns: typed literals, or rows of the table itself."""
    if rng.random() < 0.2:
        chosen = ", ".join(one.quoted for one in columns)
        return f"SELECT {chosen} FROM {{t}} WHERE {condition(rng, columns)}"
    rows = []
    for _ in range(rng.randint(1, 3)):
        cells = []
        for place, one in enumerate(columns):
            cell = literal(rng, one.type, is_nullable=one.is_nullable)
            if cell == "NULL":
                cell = f"CAST(NULL AS {one.type})"
            name = one.name if names is None else names[place]
            cells.append(f"{cell} AS `{name}`")
        rows.append("SELECT " + ", ".join(cells))
    text = " UNION ALL ".join(rows)
    return f"SELECT * FROM ({text}) WHERE false" if rng.random() < 0.06 else text


def with_more_fields(rng: Random, text: str, columns: tuple[Column, ...]) -> str:
    """Return the query with one more field in a struct column, if there is one."""
    structs = [one for one in columns if one.type in _MORE_FIELDS]
    if not structs:
        return text
    one = rng.choice(structs)
    more = rng.choice(("7", "1.5D", "'new'", "array(1)"))
    name = one.quoted
    wider = _MORE_FIELDS[one.type].format(name=name, more=more)
    return f"SELECT * EXCEPT ({name}), {wider} AS {name} FROM ({text})"


_MORE_FIELDS = {
    "STRUCT<x:INT,y:STRING>": "named_struct('x', {name}.x, 'z', {more}, 'y', {name}.y)",
    "ARRAY<STRUCT<x:INT>>": "transform({name}, e -> named_struct('z', {more}, 'x', e.x))",
}


def insert(rng: Random, shape: TableShape) -> RandomStatement:
    """Return an INSERT in one of its forms."""
    columns = shape.written
    some = tuple(one for one in columns if rng.random() < 0.7) or columns
    listed = ", ".join(one.quoted for one in some)
    settings = _DYNAMIC if rng.random() < 0.3 else ()
    all_columns = columns if len(columns) == len(shape.columns) else some
    match rng.randrange(11):
        case 0 | 1 | 2:
            names = "" if all_columns is columns else f" ({listed})"
            return f"INSERT INTO {{t}}{names} {values(rng, all_columns)}", None, ()
        case 3:
            return f"INSERT INTO {{t}} ({listed}) {values(rng, some)}", None, ()
        case 4:
            return f"INSERT INTO {{t}} ({listed}) {query(rng, some)}", None, ()
        case 5:
            return f"INSERT INTO {{t}} BY NAME {query(rng, some)}", None, ()
        case 6:
            rows = values(rng, columns) if rng.random() < 0.5 else query(rng, columns)
            return f"INSERT OVERWRITE {{t}} {rows}", None, settings
        case 7 if shape.partition_by:
            return _into_partition(rng, shape, rng.choice(("INTO", "OVERWRITE")), settings)
        case 8:
            where = condition(rng, columns)
            return f"INSERT INTO {{t}} REPLACE WHERE {where} {query(rng, columns)}", None, ()
        case 9:
            added = Column("added", rng.choice(("INT", "STRING", "ARRAY<INT>")))
            rows = query(rng, (*some, added))
            if rng.random() < 0.3:
                rows = with_more_fields(rng, rows, some)
            return f"INSERT INTO {{t}} BY NAME {rows}", None, _EVOLVING
        case _:
            return f"INSERT INTO {{t}} {query(rng, columns)}", None, ()


def _into_partition(rng: Random, shape: TableShape, into: str, settings: Pairs) -> RandomStatement:
    given, parts = set(), []
    for one in shape.partition_columns:
        if rng.random() < 0.7:
            given.add(one.name)
            parts.append(f"{one.quoted} = {of_type(rng, one.type)}")
        else:
            parts.append(one.quoted)
    fixed = [one for one in shape.written if one.name not in given]
    rest = tuple(
        [one for one in fixed if one.name not in shape.partition_by]
        + [one for one in fixed if one.name in shape.partition_by]
    )
    if not rest:
        return f"INSERT {into} {{t}} {query(rng, shape.written)}", None, settings
    return (
        f"INSERT {into} {{t}} PARTITION ({', '.join(parts)}) {query(rng, rest)}",
        None,
        settings,
    )


def _assignments(rng: Random, columns: tuple[Column, ...], prefix: str, source: str) -> Pairs:
    chosen = [one for one in columns if rng.random() < 0.4] or [rng.choice(columns)]
    pairs = []
    for one in chosen:
        value = literal(rng, one.type, is_nullable=one.is_nullable)
        match rng.randrange(6):
            case 0 if one.type in ("INT", "BIGINT", "DOUBLE", "DECIMAL(10,2)"):
                value = f"{prefix}{one.quoted} + 1"
            case 1:
                value = f"{prefix}{rng.choice(columns).quoted}"
            case 2 | 3 if source:
                value = f"{source}{one.quoted}"
            case 4 if not source:
                value = "DEFAULT"
            case 5 if one.type.startswith("STRUCT<x:INT"):
                pairs.append((f"{one.quoted}.`x`", literal(rng, "INT")))
                continue
        pairs.append((one.quoted, value))
    return tuple(pairs)


def update(rng: Random, shape: TableShape) -> RandomStatement:
    """Return an UPDATE, by SQL or by DeltaTable."""
    pairs = _assignments(rng, shape.written, "", "")
    where = condition(rng, shape.columns) if rng.random() < 0.85 else None
    if rng.random() < 0.25 and all(value != "DEFAULT" for _, value in pairs):
        return "", ApiUpdate(where, pairs), ()
    listed = ", ".join(f"{name} = {value}" for name, value in pairs)
    return f"UPDATE {{t}} SET {listed}" + (f" WHERE {where}" if where else ""), None, ()


def delete(rng: Random, shape: TableShape) -> RandomStatement:
    """Return a DELETE, by SQL or by DeltaTable."""
    where = condition(rng, shape.columns) if rng.random() < 0.92 else None
    if rng.random() < 0.2:
        return "", ApiDelete(where), ()
    return "DELETE FROM {t}" + (f" WHERE {where}" if where else ""), None, ()


def merge(rng: Random, shape: TableShape) -> RandomStatement:
    """Return a MERGE with clauses of all kinds, by SQL or by DeltaTable, maybe with schema
    evolution.
    """
    columns = shape.written
    key = columns[0]
    source = query(rng, columns)
    is_evolved = rng.random() < 0.25
    if is_evolved and "{t}" not in source:
        source = f"SELECT *, {rng.choice(('7', 'NULL', '[]'))} AS `more` FROM ({source})"
        source = source.replace("[]", "array('x')")
    if is_evolved and rng.random() < 0.5:
        source = with_more_fields(rng, source, columns)
    on = f"t.{key.quoted} = s.{key.quoted}"
    if rng.random() < 0.25:
        on = f"{on} AND {condition(rng, shape.columns, 't.')}"
    clauses = _clauses(rng, shape)
    is_api = rng.random() < 0.25
    if is_api or rng.random() < 0.9:  # Delta Spark refuses DEFAULT, which ends a program
        clauses = tuple(map(_without_default, clauses))
    if is_api:
        return source, ApiMerge(on, clauses, is_evolved), ()
    evolving = " WITH SCHEMA EVOLUTION" if is_evolved else ""
    return (
        f"MERGE{evolving} INTO {{t}} t USING ({source}) s ON {on} "
        + " ".join(map(_clause_text, clauses)),
        None,
        (),
    )


def _clauses(rng: Random, shape: TableShape) -> tuple[Clause, ...]:
    columns = shape.written
    clauses: list[Clause] = []
    for when in ("Matched", "NotMatched", "NotMatchedBySource"):
        drawn: list[Clause] = []
        for _ in range(rng.choice((0, 1, 1, 2))):
            where = "s." if when == "NotMatched" else "t."
            if_true = condition(rng, columns, where) if rng.random() < 0.4 else None
            match when:
                case "NotMatched":
                    pairs = None
                    if rng.random() < 0.5:
                        chosen = [one for one in columns if rng.random() < 0.8] or columns[:1]
                        pairs = tuple((one.quoted, f"s.{one.quoted}") for one in chosen)
                        if rng.random() < 0.2:
                            pairs = (*pairs[:-1], (pairs[-1][0], "DEFAULT"))
                    drawn.append(Clause("NotMatched", "insert", if_true, pairs))
                case "Matched" | "NotMatchedBySource" if rng.random() < 0.35:
                    drawn.append(Clause(when, "delete", if_true))
                case "Matched":
                    pairs = None
                    if rng.random() < 0.6:
                        pairs = _assignments(rng, columns, "t.", "s.")
                    drawn.append(Clause("Matched", "update", if_true, pairs))
                case _:
                    pairs = _assignments(rng, columns, "t.", "")
                    drawn.append(Clause("NotMatchedBySource", "update", if_true, pairs))
        # Only the last one of a kind may go without a condition.
        clauses += [one for one in drawn[:-1] if one.condition is not None] + drawn[-1:]
    return tuple(clauses) or (Clause("NotMatched", "insert"),)


def _without_default(clause: Clause) -> Clause:
    """Return the clause without the word DEFAULT, which DeltaTable doesn't know."""
    if clause.values is None:
        return clause
    values = ((name, "NULL" if value == "DEFAULT" else value) for name, value in clause.values)
    return replace(clause, values=tuple(values))


def _clause_text(clause: Clause) -> str:
    when = {
        "Matched": "MATCHED",
        "NotMatched": "NOT MATCHED",
        "NotMatchedBySource": "NOT MATCHED BY SOURCE",
    }[clause.when]
    if_true = f" AND {clause.condition}" if clause.condition else ""
    return f"WHEN {when}{if_true} THEN {_action_text(clause)}"


def _action_text(clause: Clause) -> str:
    if clause.action == "delete":
        return "DELETE"
    if clause.values is None:
        return "INSERT *" if clause.action == "insert" else "UPDATE SET *"
    if clause.action == "update":
        return "UPDATE SET " + ", ".join(f"{name} = {given}" for name, given in clause.values)
    names, given = (", ".join(part) for part in zip(*clause.values, strict=True))
    return f"INSERT ({names}) VALUES ({given})"


def frame(rng: Random, shape: TableShape) -> RandomStatement:
    """Return a write of a DataFrame in one of the modes."""
    columns = shape.written
    mode = rng.choice(
        ("append", "append", "overwrite", "overwrite", "overwrite", "ignore", "error")
    )
    write = FrameWrite(mode)  # type: ignore[arg-type]
    chosen = rng.randrange(7)
    if chosen == 0:
        columns = (*columns, Column("extra", rng.choice(("INT", "STRING"))))
        write = FrameWrite("append", is_schema_merged=True)
    elif chosen == 1:
        columns = tuple(one for one in columns if rng.random() < 0.7) or columns
        partition = None
        if rng.random() < 0.4:
            able = [one.name for one in columns if not is_nested(one.type)]
            partition = tuple(rng.sample(able, 1)) if len(able) > 1 else None
        write = FrameWrite("overwrite", is_schema_replaced=True, partition_by=partition)
    elif chosen == 2:
        write = FrameWrite("overwrite", replace_where=condition(rng, columns))
    elif chosen == 3:
        write = FrameWrite("overwrite", is_dynamic=True)
    elif chosen == 4 and not shape.generated:
        # Delta Spark takes the names as they are, without backquotes.
        able = [one.name for one in columns if not is_nested(one.type) and one.name.isidentifier()]
        keys = tuple(rng.sample(able, min(len(able), rng.choice((1, 1, 2)))))
        write = FrameWrite("overwrite", replace_using=keys or None)
    text = query(rng, columns)
    if write.is_schema_merged and rng.random() < 0.3:
        text = with_more_fields(rng, text, columns)
    return text, write, ()
