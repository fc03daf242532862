"""T-SQL's names in brackets, beside Spark's subscripts."""

from __future__ import annotations

import pytest

from tests.sql.parsing import one, refused
from txlake.sql.brackets import backquote_brackets
from txlake.sql.parser import is_complete
from txlake.sql.statements import Insert, TableName


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("SELECT [a b], [c] FROM [dbo].[t] AS [x]", "SELECT `a b`, `c` FROM `dbo`.`t` AS `x`"),
        ("SELECT x.[a], [b].[c d]+[e]", "SELECT x.`a`, `b`.`c d`+`e`"),
        ("SELECT [a]]b].c", "SELECT `a]b` .c"),
        ("SELECT [it's], [2026], [--]", "SELECT `it's`, `2026`, `--`"),
        ("INSERT INTO [t]([a],[b])VALUES(1,2)", "INSERT INTO `t`(`a`,`b`)VALUES(1,2)"),
        ("CREATE TABLE [t] ([select] INT)", "CREATE TABLE `t` (`select` INT)"),
        ("SELECT 1 FROM [t] [o] JOIN [u] [p] ON 1=1", "SELECT 1 FROM `t` `o` JOIN `u` `p` ON 1=1"),
        ("ALTER TABLE [t] ADD [c] INT", "ALTER TABLE `t` ADD `c` INT"),
        ("SELECT [tags][0], [m][[k]]", "SELECT `tags`[0], `m`[`k`]"),
        # Spark's own.
        ("SELECT a[0], a [i], m['k'], f(x)[1], `a`[0], (a)[[b]]", None),
        ("SELECT history[0], table[i], by[0] FROM t", None),
        ("SELECT '[a]', \"[b]\", r'\\', 1 -- [c]\n/* [d] */ FROM t", None),
        ("SELECT col:[0], [], 5 [a]", None),
    ],
)
def test_names_in_brackets(text: str, made: str | None) -> None:
    expected = text.replace("[[b]]", "[`b`]") if made is None else made
    assert backquote_brackets(text) == expected
    assert len(expected) == len(text)


def test_a_statement_in_brackets() -> None:
    statement = one("INSERT INTO [my db].[dbo].[t x] ([a b]) SELECT :v", {"v": "[c]"})
    assert isinstance(statement, Insert)
    assert statement.table == TableName(("my db", "dbo", "t x"))
    assert statement.columns == ("a b",)
    assert str(statement.source).count("'[c]'")
    assert is_complete("SELECT [it's];")


def test_errors_point_at_the_text_as_it_was_written() -> None:
    message = refused("UPDATE [t] SET [a] 1", "1:20", "expected =, found '1'")
    assert "  UPDATE [t] SET [a] 1\n" in message
    refused("SELECT 1,\n [a`b]", "2:2", "a name with a backquote can't stand in brackets")
