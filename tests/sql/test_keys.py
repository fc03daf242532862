"""PRIMARY KEY and FOREIGN KEY in CREATE TABLE and ALTER TABLE."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sql.parsing import name, one
from txlake.sql.statements import AddConstraint, CreateTable, DropConstraint, DropKey, KeyConstraint

T = name("t")
PK = KeyConstraint(columns=("a",))
FK = KeyConstraint(columns=("b",), parent=name("d.p"))


@pytest.mark.parametrize(
    ("elements", "keys"),
    [
        ("a INT PRIMARY KEY, b INT REFERENCES d.p", (PK, FK)),
        ("a INT, b INT, PRIMARY KEY (a), FOREIGN KEY (b) REFERENCES d.p", (PK, FK)),
        (
            "a INT CONSTRAINT k PRIMARY KEY NOT ENFORCED RELY COMMENT 'x', b INT",
            (KeyConstraint(name="k", columns=("a",), rely=True),),
        ),
        (
            (
                "a INT, b INT CONSTRAINT f FOREIGN KEY REFERENCES p (x) MATCH FULL "
                "ON UPDATE NO ACTION ON DELETE NO ACTION NORELY"
            ),
            (KeyConstraint(name="f", columns=("b",), parent=name("p"), parent_columns=("x",)),),
        ),
        (
            "a INT, b INT, CONSTRAINT k PRIMARY KEY (`a`, b) NOT DEFERRABLE INITIALLY DEFERRED",
            (KeyConstraint(name="k", columns=("a", "b")),),
        ),
    ],
)
def test_keys_of_a_new_table(elements: str, keys: tuple[KeyConstraint, ...]) -> None:
    made = one(f"CREATE TABLE t ({elements})")
    assert isinstance(made, CreateTable)
    assert made.keys == keys
    assert [column.name for column in made.columns] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("ADD PRIMARY KEY (a)", AddConstraint(T, PK)),
        ("ADD CONSTRAINT k PRIMARY KEY (a)", AddConstraint(T, replace(PK, name="k"))),
        ("ADD FOREIGN KEY (b) REFERENCES d.p NOT ENFORCED", AddConstraint(T, FK)),
        ("DROP CONSTRAINT k CASCADE", DropConstraint(T, "k")),
        ("DROP PRIMARY KEY", DropKey(table=T)),
        ("DROP PRIMARY KEY IF EXISTS RESTRICT", DropKey(table=T, if_exists=True)),
        ("DROP FOREIGN KEY (a, b)", DropKey(table=T, columns=("a", "b"))),
    ],
)  # fmt: skip
def test_keys_are_added_and_dropped(text: str, statement: object) -> None:
    assert one(f"ALTER TABLE t {text}") == statement
