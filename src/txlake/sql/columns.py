"""The grammar of column definitions: types, column constraints, defaults, generation."""

from __future__ import annotations

from txlake.sql.clauses import constant_expression
from txlake.sql.cursor import Cursor
from txlake.sql.keys import at_column_key, column_key
from txlake.sql.statements import After, ColumnSpec, First, Identity, KeyConstraint, Position
from txlake.sql.tokens import Kind, words

_TYPES = words(
    "ARRAY BIGINT BINARY BOOLEAN BYTE CHAR CHARACTER DATE DEC DECIMAL DOUBLE FLOAT GEOGRAPHY"
    " GEOMETRY INT INTEGER INTERVAL LONG MAP NUMERIC OBJECT REAL SHORT SMALLINT STRING STRUCT TIME"
    " TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ TINYINT VARCHAR VARIANT VOID"
)
_INTERVAL = words("YEAR MONTH DAY HOUR MINUTE SECOND TO")
_AFTER_DEFAULT = words(
    "COMMENT NOT GENERATED CONSTRAINT PRIMARY REFERENCES CHECK COLLATE FIRST AFTER"
)


def column(cursor: Cursor, keys: list[KeyConstraint] | None = None) -> ColumnSpec:
    """Parse name type [NOT NULL] [COMMENT '...'] [DEFAULT ...] [GENERATED ...] [key].

    The clauses are in any order, each at most once. `keys`: the list to which the column's keys are
    added; None where it can't have any.
    """
    return definition(cursor, cursor.name("a column's name"), keys)


def definition(cursor: Cursor, name: str, keys: list[KeyConstraint] | None = None) -> ColumnSpec:
    """Parse [:] type and the clauses of `column`, after the column's name.

    `keys` as in `column`.
    """
    cursor.accept(":")
    kind = data_type(cursor)
    nullable = True
    comment: str | None = None
    generated: str | None = None
    default: str | None = None
    identity: Identity | None = None
    clauses: set[str] = set()
    while True:
        start = cursor.token
        if cursor.accept("NOT", "NULL"):
            clause = "NOT NULL"
            nullable = False
        elif cursor.accept("NULL"):
            clause = "NOT NULL"
        elif cursor.accept("COMMENT"):
            clause = "COMMENT"
            comment = cursor.string("the comment in quotes")
        elif cursor.accept("DEFAULT"):
            clause = "a default or a generation"
            default = constant_expression(cursor, _AFTER_DEFAULT)
        elif cursor.accept("GENERATED"):
            clause = "a default or a generation"
            generated, identity = _generated(cursor)
        elif keys is not None and at_column_key(cursor):
            clause = "REFERENCES" if not cursor.at("PRIMARY") else "PRIMARY KEY"
            keys.append(column_key(cursor, None, name))
        elif keys is not None and _at_named_key(cursor):
            cursor.expect("CONSTRAINT")
            constraint = cursor.name("the constraint's name")
            clause = "REFERENCES" if not cursor.at("PRIMARY") else "PRIMARY KEY"
            keys.append(column_key(cursor, constraint, name))
        elif cursor.at_any("PRIMARY", "REFERENCES", "FOREIGN", "UNIQUE", "CONSTRAINT", "MASK"):
            cursor.refuse(
                f"a column can't have {cursor.token.upper} here: NOT NULL, COMMENT, DEFAULT and "
                "GENERATED are known; keys in CREATE TABLE, or by ALTER TABLE ... ADD CONSTRAINT, "
                "and CONSTRAINT name CHECK (...) beside the columns"
            )
        else:
            return ColumnSpec(
                name=name,
                data_type=kind,
                nullable=nullable,
                comment=comment,
                generated=generated,
                default=default,
                identity=identity,
            )
        if clause in clauses:
            cursor.refuse(f"column {name} has {clause} twice", start)
        clauses.add(clause)


def _at_named_key(cursor: Cursor) -> bool:
    following = cursor.ahead(2).upper
    return cursor.at("CONSTRAINT") and following in {"PRIMARY", "FOREIGN", "REFERENCES"}


def data_type(cursor: Cursor) -> str:
    """Parse a type, as its text. Whether its arguments are valid isn't checked."""
    first = cursor.token
    if first.kind is not Kind.WORD or first.upper not in _TYPES:
        cursor.fail("a type (INT, STRING, DECIMAL(p, s), ARRAY<...>, STRUCT<name: ...>, ...)")
    end = cursor.advance().end
    if first.upper == "INTERVAL":
        while cursor.at_any(*_INTERVAL):
            end = cursor.advance().end
    if cursor.at("("):
        opening = cursor.advance()
        cursor.skip()
        end = cursor.token.end
        if not cursor.accept(")"):
            cursor.refuse("this ( is never closed", opening)
    elif first.upper in {"ARRAY", "MAP", "STRUCT"}:
        end = _angle_brackets(cursor)
    if cursor.accept("COLLATE"):
        cursor.path("a collation")
        end = cursor.ahead(-1).end
    return cursor.source.text[first.start : end]


def position(cursor: Cursor) -> Position | None:
    """Parse FIRST or AFTER column; None if neither is next."""
    if cursor.accept("FIRST"):
        return First()
    if cursor.accept("AFTER"):
        return After(cursor.name("a column"))
    return None


def _angle_brackets(cursor: Cursor) -> int:
    """Skip <...>, with nested ones, and return the position after it."""
    opening = cursor.token
    if cursor.accept("<>"):
        return opening.end
    if not cursor.at("<"):
        cursor.fail("<")
    depth = 0
    while True:
        if cursor.at_end:
            cursor.refuse("this < is never closed", opening)
        token = cursor.advance()
        if token.kind is Kind.SYMBOL:
            depth += token.text.count("<") - token.text.count(">")
        if depth <= 0:
            return token.end


def _generated(cursor: Cursor) -> tuple[str | None, Identity | None]:
    """Parse { ALWAYS | BY DEFAULT } AS { IDENTITY [(...)] | (expression) }, after GENERATED.

    Return the expression or the identity, and None for the other one.
    """
    always = True
    if not cursor.accept("ALWAYS"):
        cursor.expect("BY", "DEFAULT")
        always = False
    cursor.expect("AS")
    if cursor.accept("IDENTITY"):
        return None, _identity(cursor, always)
    if not always:
        cursor.fail("IDENTITY")
    opening = cursor.token
    cursor.expect("(")
    text = constant_expression(cursor)
    if not cursor.accept(")"):
        cursor.refuse("this ( is never closed", opening)
    return text, None


def _identity(cursor: Cursor, always: bool) -> Identity:
    """Parse [([START WITH n] [INCREMENT BY n])], after GENERATED { ALWAYS | BY DEFAULT } AS
    IDENTITY.

    Both numbers are 1 by default.
    """
    start, step = 1, 1
    if not cursor.accept("("):
        return Identity(always)
    options: set[str] = set()
    while not cursor.accept(")"):
        option = cursor.token
        if option.upper in options:
            cursor.refuse(f"an identity's {option.upper} is there twice", option)
        options.add(option.upper)
        if cursor.accept("START", "WITH"):
            start = cursor.integer()
        elif cursor.accept("INCREMENT", "BY"):
            token = cursor.token
            step = cursor.integer()
            if step == 0:
                cursor.refuse(
                    "[DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP] an identity's step can't be 0", token
                )
        else:
            cursor.fail("START WITH n, INCREMENT BY n or )")
    return Identity(always, start, step)
