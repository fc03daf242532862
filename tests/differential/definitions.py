"""Random statements about a whole table: ALTER, OPTIMIZE, RESTORE, CLONE, time travel."""

from __future__ import annotations

from random import Random

from tests.differential.rows import RandomStatement, condition, query
from tests.differential.schemas import TableShape
from tests.differential.values import LITERALS, WIDER, is_nested, of_type

_COMMENTED = " COMMENT 'new'"


def alter(rng: Random, shape: TableShape, number: int) -> RandomStatement:
    """Return an ALTER TABLE in one of its forms."""
    one = rng.choice(shape.columns)
    new = f"c{number}"
    kind = rng.choice(list(LITERALS))
    match rng.randrange(14):
        case 0 | 1:
            place = rng.choice(("", "", " FIRST", f" AFTER {one.quoted}"))
            text = f"ADD COLUMNS ({new} {kind}{rng.choice(('', _COMMENTED))}{place})"
            return f"ALTER TABLE {{t}} {text}", None, ()
        case 2:
            text = f"DROP COLUMN {one.quoted}"
        case 3:
            text = f"RENAME COLUMN {one.quoted} TO `{rng.choice((new, one.name.upper()))}`"
        case 4 | 5:
            wider = rng.choice(WIDER.get(one.type, ("BIGINT", "STRING")))
            text = f"ALTER COLUMN {one.quoted} TYPE {wider}"
        case 6:
            text = f"ALTER COLUMN {one.quoted} {rng.choice(('SET', 'DROP'))} NOT NULL"
        case 7:
            where = condition(rng, shape.columns)
            text = f"ADD CONSTRAINT k{rng.randint(1, 2)} CHECK ({where})"
        case 8:
            text = f"DROP CONSTRAINT {rng.choice(('', 'IF EXISTS '))}k{rng.randint(1, 2)}"
        case 9:
            default = of_type(rng, one.type)
            text = f"ALTER COLUMN {one.quoted} " + rng.choice(
                (f"SET DEFAULT {default}", "DROP DEFAULT")
            )
        case 10:
            place = rng.choice(("FIRST", f"AFTER {rng.choice(shape.columns).quoted}"))
            text = f"ALTER COLUMN {one.quoted} {place}"
        case 11:
            text = f"ALTER COLUMN {one.quoted} COMMENT 'it''s new'"
        case 12:
            text = f"UNSET TBLPROPERTIES IF EXISTS ('{rng.choice(_PROPERTIES)[0]}')"
        case _:
            key, value = rng.choice(_PROPERTIES)
            text = f"SET TBLPROPERTIES ('{key}' = '{value}')"
    return f"ALTER TABLE {{t}} {text}", None, ()


_PROPERTIES = (
    ("delta.enableDeletionVectors", "true"),
    ("delta.enableDeletionVectors", "false"),
    ("delta.columnMapping.mode", "name"),
    ("delta.enableTypeWidening", "true"),
    ("delta.appendOnly", "true"),
    ("delta.appendOnly", "false"),
    ("delta.feature.allowColumnDefaults", "supported"),
    ("delta.checkpointInterval", "3"),
    ("delta.dataSkippingNumIndexedCols", "1"),
    ("owner", "ours"),
)


def optimize(rng: Random, shape: TableShape) -> RandomStatement:
    """Return an OPTIMIZE with or without a condition or Z-order, or a REORG."""
    flat = [one for one in shape.columns if not is_nested(one.type)]
    match rng.randrange(5):
        case 0 if shape.partition_by:
            where = condition(rng, shape.partition_columns)
            if rng.random() < 0.4:
                one = rng.choice(shape.partition_columns)
                computed = (
                    f"hash({one.quoted}) % 2 = 0",
                    f"upper(CAST({one.quoted} AS STRING)) > 'A'",
                )
                where = rng.choice(computed)
            return f"OPTIMIZE {{t}} WHERE {where}", None, ()
        case 1:
            return f"OPTIMIZE {{t}} ZORDER BY ({rng.choice(flat).quoted})", None, ()
        case 2:
            return "REORG TABLE {t} APPLY (PURGE)", None, ()
        case _:
            return "OPTIMIZE {t}", None, ()


def restore(rng: Random, number: int) -> RandomStatement:
    """Return a RESTORE to the version after an earlier step."""
    return f"RESTORE TABLE {{t}} TO VERSION AS OF {{v{rng.randrange(number)}}}", None, ()


def clone(rng: Random, number: int) -> RandomStatement:
    """Return a CLONE of the first table into the program's second one."""
    words = rng.choice(("CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"))
    travel = rng.choice(("", f" VERSION AS OF {{v{rng.randrange(number)}}}"))
    return f"{words} {{u}} SHALLOW CLONE {{t}}{travel}", None, ()


def second(rng: Random, shape: TableShape) -> RandomStatement:
    """Return a change of the program's second table, which exists after the first CLONE."""
    where = condition(rng, shape.columns)
    one = rng.choice(shape.written)
    on = f"t.{shape.written[0].quoted} = s.{shape.written[0].quoted}"
    clauses = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    return (
        rng.choice(
            (
                f"DELETE FROM {{u}} WHERE {where}",
                "INSERT INTO {u} BY NAME SELECT * FROM {t}",
                f"UPDATE {{u}} SET {one.quoted} = {of_type(rng, one.type)} WHERE {where}",
                f"MERGE INTO {{u}} t USING {{t}} s ON {on} {clauses}",
                "OPTIMIZE {u}",
                "RESTORE TABLE {u} TO VERSION AS OF 0",
                "REORG TABLE {u} APPLY (PURGE)",
            )
        ),
        None,
        (),
    )


def select(rng: Random, shape: TableShape, number: int) -> RandomStatement:
    """Return a query of the present or an earlier version."""
    if rng.random() < 0.6:
        earlier = rng.randrange(number)
        return f"SELECT * FROM {{t}} VERSION AS OF {{v{earlier}}}", None, ()
    where = condition(rng, shape.columns)
    flat = [one.quoted for one in shape.columns if not is_nested(one.type)]
    chosen = ", ".join(rng.sample(flat, min(2, len(flat))))
    return f"SELECT {chosen}, count(*) AS c FROM {{t}} WHERE {where} GROUP BY {chosen}", None, ()


def replace(rng: Random, shape: TableShape) -> RandomStatement:
    """Return a replacement of the table by a query's rows, or a TRUNCATE."""
    if rng.random() < 0.4:
        return "TRUNCATE TABLE {t}", None, ()
    rows = query(rng, shape.written)
    flat = [one.quoted for one in shape.written if not is_nested(one.type)]
    parts = f" PARTITIONED BY ({rng.choice(flat)})" if rng.random() < 0.4 else ""
    kept = " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    return f"CREATE OR REPLACE TABLE {{t}} USING DELTA{parts}{kept} AS {rows}", None, ()
