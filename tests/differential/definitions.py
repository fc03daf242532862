"""Draws the statements about a table as a whole: ALTER, OPTIMIZE, RESTORE, CLONE, time travel."""

from __future__ import annotations

from random import Random

from tests.differential.rows import Drawn, condition, query
from tests.differential.schemas import Shape
from tests.differential.values import LITERALS, WIDER, is_nested, of_type

_COMMENTED = " COMMENT 'new'"


def alter(luck: Random, shape: Shape, number: int) -> Drawn:
    """ALTER TABLE in one of its forms."""
    one = luck.choice(shape.columns)
    new = f"c{number}"
    kind = luck.choice(list(LITERALS))
    match luck.randrange(14):
        case 0 | 1:
            place = luck.choice(("", "", " FIRST", f" AFTER {one.quoted}"))
            text = f"ADD COLUMNS ({new} {kind}{luck.choice(('', _COMMENTED))}{place})"
            return f"ALTER TABLE {{t}} {text}", None, ()
        case 2:
            text = f"DROP COLUMN {one.quoted}"
        case 3:
            text = f"RENAME COLUMN {one.quoted} TO `{luck.choice((new, one.name.upper()))}`"
        case 4 | 5:
            wider = luck.choice(WIDER.get(one.type, ("BIGINT", "STRING")))
            text = f"ALTER COLUMN {one.quoted} TYPE {wider}"
        case 6:
            text = f"ALTER COLUMN {one.quoted} {luck.choice(('SET', 'DROP'))} NOT NULL"
        case 7:
            where = condition(luck, shape.columns)
            text = f"ADD CONSTRAINT k{luck.randint(1, 2)} CHECK ({where})"
        case 8:
            text = f"DROP CONSTRAINT {luck.choice(('', 'IF EXISTS '))}k{luck.randint(1, 2)}"
        case 9:
            default = of_type(luck, one.type)
            text = f"ALTER COLUMN {one.quoted} " + luck.choice(
                (f"SET DEFAULT {default}", "DROP DEFAULT")
            )
        case 10:
            place = luck.choice(("FIRST", f"AFTER {luck.choice(shape.columns).quoted}"))
            text = f"ALTER COLUMN {one.quoted} {place}"
        case 11:
            text = f"ALTER COLUMN {one.quoted} COMMENT 'it''s new'"
        case 12:
            text = f"UNSET TBLPROPERTIES IF EXISTS ('{luck.choice(_PROPERTIES)[0]}')"
        case _:
            key, value = luck.choice(_PROPERTIES)
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


def optimize(luck: Random, shape: Shape) -> Drawn:
    """OPTIMIZE with or without a condition or Z-order; REORG."""
    flat = [one for one in shape.columns if not is_nested(one.type)]
    match luck.randrange(5):
        case 0 if shape.partition_by:
            where = condition(luck, shape.partition_columns)
            if luck.random() < 0.4:
                one = luck.choice(shape.partition_columns)
                computed = (
                    f"hash({one.quoted}) % 2 = 0",
                    f"upper(CAST({one.quoted} AS STRING)) > 'A'",
                )
                where = luck.choice(computed)
            return f"OPTIMIZE {{t}} WHERE {where}", None, ()
        case 1:
            return f"OPTIMIZE {{t}} ZORDER BY ({luck.choice(flat).quoted})", None, ()
        case 2:
            return "REORG TABLE {t} APPLY (PURGE)", None, ()
        case _:
            return "OPTIMIZE {t}", None, ()


def restore(luck: Random, number: int) -> Drawn:
    """RESTORE to the version after an earlier step."""
    return f"RESTORE TABLE {{t}} TO VERSION AS OF {{v{luck.randrange(number)}}}", None, ()


def clone(luck: Random, number: int) -> Drawn:
    """The program's second table becomes a clone of the first."""
    words = luck.choice(("CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"))
    travel = luck.choice(("", f" VERSION AS OF {{v{luck.randrange(number)}}}"))
    return f"{words} {{u}} SHALLOW CLONE {{t}}{travel}", None, ()


def second(luck: Random, shape: Shape) -> Drawn:
    """The program's second table is changed; there is none before the first CLONE."""
    where = condition(luck, shape.columns)
    one = luck.choice(shape.written)
    on = f"t.{shape.written[0].quoted} = s.{shape.written[0].quoted}"
    clauses = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
    return (
        luck.choice(
            (
                f"DELETE FROM {{u}} WHERE {where}",
                "INSERT INTO {u} BY NAME SELECT * FROM {t}",
                f"UPDATE {{u}} SET {one.quoted} = {of_type(luck, one.type)} WHERE {where}",
                f"MERGE INTO {{u}} t USING {{t}} s ON {on} {clauses}",
                "OPTIMIZE {u}",
                "RESTORE TABLE {u} TO VERSION AS OF 0",
                "REORG TABLE {u} APPLY (PURGE)",
            )
        ),
        None,
        (),
    )


def select(luck: Random, shape: Shape, number: int) -> Drawn:
    """A query, of now or of an earlier version."""
    if luck.random() < 0.6:
        earlier = luck.randrange(number)
        return f"SELECT * FROM {{t}} VERSION AS OF {{v{earlier}}}", None, ()
    where = condition(luck, shape.columns)
    flat = [one.quoted for one in shape.columns if not is_nested(one.type)]
    chosen = ", ".join(luck.sample(flat, min(2, len(flat))))
    return f"SELECT {chosen}, count(*) AS c FROM {{t}} WHERE {where} GROUP BY {chosen}", None, ()


def replace(luck: Random, shape: Shape) -> Drawn:
    """The table is replaced: by rows of a query, or truncated."""
    if luck.random() < 0.4:
        return "TRUNCATE TABLE {t}", None, ()
    rows = query(luck, shape.written)
    flat = [one.quoted for one in shape.written if not is_nested(one.type)]
    parts = f" PARTITIONED BY ({luck.choice(flat)})" if luck.random() < 0.4 else ""
    kept = " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    return f"CREATE OR REPLACE TABLE {{t}} USING DELTA{parts}{kept} AS {rows}", None, ()
