"""SQL scripting inside of BEGIN ATOMIC ... END."""

from __future__ import annotations

import pytest

from tests.sql.parsing import name, one, refused, sql
from txlake.sql import is_complete
from txlake.sql.statements import Atomic, Delete, ExecuteImmediate, SparkCommand, SqlText, Truncate
from txlake.sql.statements.scripting import (
    Block,
    Branch,
    Conditional,
    DeclareVariable,
    ForEach,
    Handler,
    Jump,
    Loop,
    SetVariables,
    Signal,
)

T = Truncate(name("t"))
D = Delete(table=name("t"), condition=sql("a = x"))


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("DECLARE x INT", DeclareVariable(names=("x",), data_type="INT")),
        (
            "DECLARE x, y DECIMAL(3, 1) DEFAULT 1 + 1",
            DeclareVariable(
                names=("x", "y"), data_type="DECIMAL(3, 1)", default=sql("SELECT 1 + 1")
            ),
        ),
        ("DECLARE x = 'a'", DeclareVariable(names=("x",), default=sql("SELECT 'a'"))),
        ("SET x = 2", SetVariables(("x",), sql("SELECT 2"))),
        ("SET VAR x = 2", SetVariables(("x",), sql("SELECT 2"))),
        ("SET var = 2", SetVariables(("var",), sql("SELECT 2"))),
        ("SET (x, y) = (SELECT 1, 2)", SetVariables(("x", "y"), sql("SELECT 1, 2"))),
        ("DELETE FROM t WHERE a = x", D),
        (
            "IF x > 1 THEN TRUNCATE TABLE t; END IF",
            Conditional(branches=(Branch(sql("x > 1"), (T,)),)),
        ),
        (
            (
                "IF CASE WHEN a THEN b END THEN TRUNCATE TABLE t; ELSEIF c THEN IF d THEN "
                "TRUNCATE TABLE t; END IF; ELSE TRUNCATE TABLE t; TRUNCATE TABLE t; END IF"
            ),
            Conditional(
                branches=(
                    Branch(sql("CASE WHEN a THEN b END"), (T,)),
                    Branch(sql("c"), (Conditional(branches=(Branch(sql("d"), (T,)),)),)),
                ),
                else_steps=(T, T),
            ),
        ),
        (
            (
                "CASE WHEN a THEN TRUNCATE TABLE t; WHEN b THEN TRUNCATE TABLE t; "
                "ELSE DELETE FROM t WHERE a = x; END CASE"
            ),
            Conditional(branches=(Branch(sql("a"), (T,)), Branch(sql("b"), (T,))), else_steps=(D,)),
        ),
        (
            "CASE x WHEN 1 THEN TRUNCATE TABLE t; END CASE",
            Conditional(branches=(Branch(sql("(x) = (1)"), (T,)),), else_steps=None),
        ),
        ("WHILE x DO TRUNCATE TABLE t; END WHILE", Loop(steps=(T,), while_condition=sql("x"))),
        (
            "a: LOOP LEAVE a; ITERATE A; END LOOP a",
            Loop(steps=(Jump("LEAVE", "a"), Jump("ITERATE", "a")), label="a"),
        ),
        (
            "REPEAT TRUNCATE TABLE t; UNTIL x END REPEAT",
            Loop(steps=(T,), until_condition=sql("x")),
        ),
        (
            "FOR r AS SELECT 1 AS a DO TRUNCATE TABLE t; END FOR",
            ForEach(query=sql("SELECT 1 AS a"), steps=(T,), variable="r"),
        ),
        ("FOR SELECT 1 DO TRUNCATE TABLE t; END FOR", ForEach(query=sql("SELECT 1"), steps=(T,))),
        (
            "b: BEGIN TRUNCATE TABLE t; LEAVE b; END b",
            Block(steps=(T, Jump("LEAVE", "b")), label="b"),
        ),
        (
            "BEGIN DECLARE x INT; TRUNCATE TABLE t; END",
            Block(steps=(DeclareVariable(names=("x",), data_type="INT"), T)),
        ),
        (
            (
                "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN TRUNCATE TABLE t; RESIGNAL; "
                "END; TRUNCATE TABLE t; END"
            ),
            Block(
                steps=(T,),
                handlers=(
                    Handler(exits=True, states=("SQLEXCEPTION",), steps=(T, Signal(state=None))),
                ),
            ),
        ),
        (
            (
                "BEGIN DECLARE c CONDITION FOR SQLSTATE '45123'; DECLARE CONTINUE HANDLER FOR c, "
                "NOT FOUND, SQLSTATE VALUE '22012', DIVIDE_BY_ZERO TRUNCATE TABLE t; SIGNAL c; END"
            ),
            Block(
                steps=(Signal(state="45123", condition="c"),),
                handlers=(
                    Handler(
                        exits=False,
                        states=("45123", "NOT FOUND", "22012", "DIVIDE_BY_ZERO"),
                        steps=(T,),
                    ),
                ),
            ),
        ),
        (
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no ' || x",
            Signal(state="45000", message=sql("SELECT 'no ' || x")),
        ),
        (
            "EXECUTE IMMEDIATE 'SELECT ?, ?' || x INTO a, b USING 1 + 1, y",
            ExecuteImmediate(
                sql=sql("SELECT 'SELECT ?, ?' || x"),
                into=("a", "b"),
                using=((sql("1 + 1"), None), (sql("y"), None)),
            ),
        ),
    ],
)
def test_steps(text: str, step: object) -> None:
    found = one(f"BEGIN ATOMIC {text}; TRUNCATE TABLE t; END")
    assert found == Atomic((step, T))  # type: ignore[arg-type]
    assert is_complete(f"BEGIN ATOMIC {text}; TRUNCATE TABLE t; END;")
    assert not is_complete(f"BEGIN ATOMIC {text}; TRUNCATE TABLE t;")


def test_steps_read_the_tables_that_they_name() -> None:
    found = one(
        "BEGIN ATOMIC CASE (SELECT max(a) FROM d.t) WHEN (TABLE u) THEN SELECT 1; END CASE; END"
    )
    assert isinstance(found, Atomic)
    [choice] = found.statements
    assert isinstance(choice, Conditional)
    condition = choice.branches[0].condition
    assert [str(one.table) for one in condition.references] == ["d.t", "u"]
    assert [condition.text[one.start : one.end] for one in condition.references] == ["d.t", "u"]
    found = one("BEGIN ATOMIC SET x = (SELECT a FROM d.t); END")
    assert isinstance(found, Atomic)
    [step] = found.statements
    assert isinstance(step, SetVariables)
    [reference] = step.value.references
    assert step.value.text[reference.start : reference.end] == "d.t"


def test_handlers_of_the_whole_block() -> None:
    found = one(
        "BEGIN ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION TRUNCATE TABLE t; SELECT 1; END"
    )
    assert isinstance(found, Atomic)
    assert found.handlers == (Handler(exits=True, states=("SQLEXCEPTION",), steps=(T,)),)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("IF x THEN SELECT 1; END;", "1:37", "expected IF"),
        ("IF x SELECT 1; END IF;", "1:27", "expected THEN"),
        ("IF THEN SELECT 1; END IF;", "1:17", "expected a condition"),
        ("WHILE x DO SELECT 1; END LOOP;", "1:39", "expected WHILE"),
        ("LEAVE a;", "1:20", "LEAVE names the label of a block or loop around it"),
        ("a: BEGIN ITERATE a; END;", "1:31", "ITERATE names the label of a loop"),
        ("a: LOOP a: LOOP SELECT 1; END LOOP; END LOOP;", "1:30", "around this one"),
        ("IF x THEN DECLARE y INT; END IF;", "1:24", "DECLARE stands in a block"),
        ("DECLARE x;", "1:23", "a type, or DEFAULT"),
        ("SIGNAL nix;", "1:21", "no condition nix"),
        ("SIGNAL SQLSTATE '00000';", "1:30", "isn't 00000"),
        ("DECLARE EXIT HANDLER FOR SQLSTATE '1' SELECT 1;", "1:48", "five digits"),
        ("SET (x) = 1;", "1:24", "a query in parentheses"),
        ("EXECUTE IMMEDIATE (SELECT a FROM t);", "1:32", "can't have a query"),
        ("IF x THEN COMMIT; END IF;", "1:24", "no transaction statements inside"),
    ],
)
def test_malformed_steps_are_shown(text: str, place: str, problem: str) -> None:
    refused(f"BEGIN ATOMIC {text} END", place, problem)


def test_a_variable_is_set_from_the_lake() -> None:
    found = one("SET VAR x = (SELECT max(a) FROM d.t)")
    [reference] = found.command.references  # type: ignore[union-attr]
    assert str(reference.table) == "d.t"
    assert one("SET x = 1") != found
    assert isinstance(found.command, SqlText)  # type: ignore[union-attr]


def test_several_variables_are_set() -> None:
    text = "SET VAR x = (SELECT max(a) FROM t), y = DEFAULT, z = (SELECT b FROM d.u) + 1"
    found = one(text)
    assert isinstance(found, SparkCommand)
    assert found.command.text == text
    assert found.command.rewritten(lambda _: "<v>") == (
        "SET VAR x = (SELECT max(a) FROM <v> AS `t`), y = DEFAULT, "
        "z = (SELECT b FROM <v> AS `u`) + 1"
    )
    refused("SET VAR x = 1, y", "1:17", "expected =")


def test_the_values_of_a_text_may_stand_in_parentheses() -> None:
    found = one("EXECUTE IMMEDIATE 'SELECT :a, :b' USING (1 AS a, (2) + x AS b)")
    assert isinstance(found, ExecuteImmediate)
    assert found.using == ((sql("1"), "a"), (sql("(2) + x"), "b"))
    found = one("EXECUTE IMMEDIATE 'SELECT ?, ?' USING (1) + 2, (3)")
    assert isinstance(found, ExecuteImmediate)
    assert found.using == ((sql("(1) + 2"), None), (sql("(3)"), None))
