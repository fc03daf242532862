"""Random conditions over a table's columns: comparisons, lists, patterns, functions, logic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tests.ask.forms import FUNCTIONS, NESTED, SPELLINGS, WHOLE
from tests.ask.kinds import EVERY, KINDS, Kind, literal, quoted
from tests.ask.tables import Column

_MARKED = re.compile("\u27e6(.*?)\u27e7")
_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, or a part of one.

    Attributes:
        form: the text; `{}` stands for each part, and a column's name stands between marks.
        operator: the outermost operator, by which the condition is counted.
        kinds: the types of the columns that the condition names itself.
        may_fail: Spark may raise an error for some value, in ANSI mode.
    """

    form: str
    operator: str
    parts: tuple[Condition, ...] = ()
    kinds: tuple[str, ...] = ()
    may_fail: bool = False

    def text(self, qualifier: str = "") -> str:
        """Return the condition in SQL with its columns qualified."""
        own = _MARKED.sub(lambda name: f"{qualifier}`{name[1]}`", self.form)
        if not self.parts:
            return own
        pieces = own.split("{}")
        found = [pieces[0]]
        for part, piece in zip(self.parts, pieces[1:], strict=True):
            found += [part.text(qualifier), piece]
        return "".join(found)

    @property
    def can_fail(self) -> bool:
        """Whether the condition or a part of it may raise an error."""
        return self.may_fail or any(part.can_fail for part in self.parts)

    def operators(self) -> Iterator[str]:
        """Yield the operators of the condition and of its parts."""
        yield self.operator
        for part in self.parts:
            yield from part.operators()

    def all_kinds(self) -> Iterator[str]:
        """Yield the types of all columns that the condition names."""
        yield from self.kinds
        for part in self.parts:
            yield from part.all_kinds()

    def simplifications(self) -> Iterator[Condition]:
        """Yield conditions with one part less, the simplest first."""
        yield from self.parts
        if self.operator in ("AND", "OR") and len(self.parts) > 2:
            for place in range(len(self.parts)):
                yield _join(self.operator, self.parts[:place] + self.parts[place + 1 :])
        for place, part in enumerate(self.parts):
            for other in part.simplifications():
                yield replace(self, parts=(*self.parts[:place], other, *self.parts[place + 1 :]))


def negate(one: Condition) -> Condition:
    """Return NOT of a condition."""
    return Condition("NOT ({})", "NOT", (one,))


def is_unknown(one: Condition) -> Condition:
    """Return IS NULL of a condition."""
    return Condition("({}) IS NULL", "IS NULL", (one,))


def _join(word: str, parts: Sequence[Condition]) -> Condition:
    return Condition(f" {word} ".join(["({})"] * len(parts)), word, tuple(parts))


@dataclass(frozen=True, slots=True)
class Expression:
    """A value: its text with marks, its type, and whether its evaluation may fail."""

    form: str
    sql: str
    kinds: tuple[str, ...] = ()
    may_fail: bool = False


class ConditionGenerator:
    """Generates random conditions over these columns."""

    def __init__(
        self,
        rng: Random,
        columns: Sequence[Column],
        pools: Mapping[str, Sequence[Any]],
        *,
        folds_case: bool = True,
    ) -> None:
        self._rng = rng
        self._columns = columns
        self._pools = pools
        self._folds_case = folds_case

    def condition(self, depth: int | None = None) -> Condition:
        """Return a condition; simple ones are the most frequent."""
        if depth is None:
            depth = self._rng.choice((0, 0, 0, 1, 1, 2, 3))
        if depth == 0:
            return self._leaf()
        draw = self._rng.random()
        if draw < 0.3:
            return negate(self.condition(depth - 1))
        if draw < 0.9:
            count = self._rng.choice((2, 2, 2, 3))
            word = self._rng.choice(("AND", "OR"))
            return _join(word, [self.condition(depth - 1) for _ in range(count)])
        if draw < 0.94:
            return is_unknown(self.condition(depth - 1))
        form = self._rng.choice(
            ("({}) IS TRUE", "({}) IS NOT TRUE", "({}) IS FALSE", "({}) IS NOT NULL", "({}) = true")
        )
        return Condition(form, form[5:], (self.condition(depth - 1),))

    # Values

    def _name(self, column: Column) -> str:
        name = column.name
        if self._folds_case and self._rng.random() < 0.05:
            name = name.upper()
            if len(name) != len(column.name):
                name = column.name
        return f"\u27e6{name}\u27e7"

    def _reference(self, *groups: str) -> tuple[Expression, Kind] | None:
        """Return a column or a field of a struct with a type in one of the groups, or of any
        type.
        """
        rng = self._rng
        found: list[tuple[Column, str | None]] = []
        for column in self._columns:
            if not groups or column.kind.group in groups:
                found.append((column, None))
            for name, sql in column.kind.fields.items():
                if not groups or EVERY[sql].group in groups:
                    found.append((column, name))
        if not found:
            return None
        column, below = rng.choice(found)
        if below is None:
            kind = column.kind
            return Expression(self._name(column), kind.sql, (kind.sql,)), kind
        kind = EVERY[column.kind.fields[below]]
        return Expression(f"{self._name(column)}.{below}", kind.sql, (column.kind.sql,)), kind

    def _value(self, kind: Kind, name: str | None = None) -> Any:
        """Return a value of a type, mostly one that the column has."""
        pool = self._pools.get(name or "", ()) if self._rng.random() < 0.7 else ()
        fitting = [one for one in pool if one is not None]
        return self._rng.choice(fitting or list(kind.values))

    def _literal(self, kind: Kind, value: Any) -> tuple[str, bool]:
        """Return the text of a value to compare a column with, and whether its evaluation may
        fail.
        """
        rng = self._rng
        exact = literal(kind.sql, value)
        draw = rng.random()
        if draw < 0.35:
            return exact, False
        match kind.group:
            case "number":
                return self._number(kind, value, exact)
            case "text":
                forms = (exact, exact, f"concat({exact}, '')", f"CAST({exact} AS STRING)")
                return rng.choice(forms), False
            case "time":
                return self._time(kind, value, exact)
            case "binary":
                shown = [exact]
                if all(32 < byte < 127 and byte != 39 for byte in value):
                    shown.append(f"CAST('{value.decode()}' AS BINARY)")
                return rng.choice(shown), False
        return exact, False

    def _number(self, kind: Kind, value: Any, exact: str) -> tuple[str, bool]:
        rng = self._rng
        is_whole = isinstance(value, int) or (value == value and abs(value) < 1e15)
        is_integral = is_whole and value == int(value)
        forms = [exact, f"({value})" if isinstance(value, int | Decimal) else exact]
        if is_integral:
            number = int(value)
            forms += [f"{number}", f"{number}.0", f"{number}e0", f"{number}L", f"'{number}'"]
            forms += [f"{number}.5", f"{number}BD", f"CAST({number} AS BIGINT)", f"0{number}"]
            if number >= 0:
                forms.append(f"CAST('{number}' AS INT)")
            forms.append(f"CAST('{number}' AS DOUBLE)")
        elif isinstance(value, float):
            shown = repr(value).replace("nan", "NaN").replace("inf", "Infinity")
            forms += [f"CAST('{shown}' AS DOUBLE)", f"double('{shown}')", f"float('{shown}')"]
            if is_whole:
                forms += [f"{value!r}", f"{value!r}D", f"'{value!r}'"]
        forms += ["0", "1", "1.5", "-1", "2147483648", "9223372036854775808"]
        if rng.random() < 0.01:
            forms = ["1e400"]
        found = rng.choice(forms)
        number_text = found.strip("()")
        if number_text.startswith("-"):
            found = f"({number_text})"
        return found, found.startswith("'") or "CAST('" in found

    def _time(self, kind: Kind, value: Any, exact: str) -> tuple[str, bool]:
        rng = self._rng
        text = exact.split("'")[1]
        plain = text.rstrip("Z")
        forms = [
            exact,
            f"'{text}'",
            f"'{plain}'",
            f"TIMESTAMP'{plain}'",
            f"TIMESTAMP_NTZ'{plain}'",
            f"DATE'{plain[:10]}'",
            f"'{plain[:10]}'",
            f"'{plain[:4]}'",
            f"to_date('{plain[:10]}')",
            f"CAST('{plain}' AS TIMESTAMP)",
            f"CAST('{plain[:10]}' AS DATE)",
            f"timestamp '{plain}'",
            f"TIMESTAMP'{plain}+05:30'" if " " in plain else exact,
            f"TIMESTAMP'{plain} Europe/Oslo'" if " " in plain else exact,
            "DATE'2020-01-01'",
            "TIMESTAMP'2020-03-08 02:30:00'",
            "TIMESTAMP'2020-11-01 01:30:00'",
            "TIMESTAMP_LTZ'1948-04-28 09:35:00'",
        ]
        return rng.choice(forms), False

    # Conditions without parts

    def _leaf(self) -> Condition:
        rng = self._rng
        makers: Sequence[tuple[int, Callable[[], Condition | None]]] = (
            (30, self._comparison),
            (10, self._two_columns),
            (12, self._in_list),
            (8, self._between),
            (10, self._pattern),
            (10, self._null_test),
            (5, self._boolean),
            (25, self._function),
            (12, self._spelling),
            (6, self._nested_value_condition),
        )
        weights = [weight for weight, _ in makers]
        for _ in range(8):
            [(_, maker)] = rng.choices(makers, weights)
            found = maker()
            if found is not None:
                return found
        return self._null_test()

    def _comparison(self) -> Condition | None:
        rng = self._rng
        found = self._reference("number", "text", "time", "binary", "boolean")
        if found is None:
            return None
        one, kind = found
        value = self._value(kind, _plain_name(one))
        text, may_fail = self._literal(kind, value)
        if rng.random() < 0.04:
            text, may_fail = self._foreign_literal(kind), True
        operator = rng.choice(_COMPARISONS)
        form = f"{one.form} {operator} {text}"
        if rng.random() < 0.2:
            form = f"{text} {operator} {one.form}"
        return Condition(form, operator, (), one.kinds, may_fail)

    def _foreign_literal(self, kind: Kind) -> str:
        other = self._rng.choice([one for one in KINDS.values() if one.group != "map"])
        return literal(other.sql, self._rng.choice(list(other.values)))

    def _two_columns(self) -> Condition | None:
        rng = self._rng
        group = rng.choice(("number", "text", "time", "binary", "boolean"))
        one, other = self._reference(group), self._reference(group)
        if one is None or other is None:
            return None
        operator = rng.choice(_COMPARISONS)
        form = f"{one[0].form} {operator} {other[0].form}"
        return Condition(form, f"{operator} columns", (), (*one[0].kinds, *other[0].kinds))

    def _in_list(self) -> Condition | None:
        rng = self._rng
        found = self._reference("number", "text", "time", "binary", "boolean")
        if found is None:
            return None
        one, kind = found
        count = rng.choice((1, 2, 3, 3, 70))
        texts, may_fail = [], False
        for _ in range(count):
            text, fails = self._literal(kind, self._value(kind, _plain_name(one)))
            if count > 10:
                text, fails = literal(kind.sql, self._value(kind)), False
            texts.append(text)
            may_fail = may_fail or fails
        if rng.random() < 0.2:
            texts.insert(rng.randint(0, len(texts)), "NULL")
        word = rng.choice(("IN", "IN", "NOT IN"))
        return Condition(f"{one.form} {word} ({', '.join(texts)})", word, (), one.kinds, may_fail)

    def _between(self) -> Condition | None:
        found = self._reference("number", "text", "time")
        if found is None:
            return None
        one, kind = found
        ends = [self._literal(kind, self._value(kind, _plain_name(one))) for _ in range(2)]
        word = self._rng.choice(("BETWEEN", "NOT BETWEEN"))
        form = f"{one.form} {word} {ends[0][0]} AND {ends[1][0]}"
        return Condition(form, word, (), one.kinds, any(fails for _, fails in ends))

    def _pattern(self) -> Condition | None:
        rng = self._rng
        found = self._reference("text") if rng.random() < 0.9 else self._reference("number", "time")
        if found is None:
            return None
        one, _ = found
        value = str(self._value(KINDS["STRING"], _plain_name(one)))
        start = value[: rng.choice((0, 1, 2, 32, 33))]
        start_text = quoted(start)
        word = rng.choice(("LIKE", "NOT LIKE", "LIKE", "RLIKE", "ILIKE", "startswith", "contains"))
        match word:
            case "LIKE" | "NOT LIKE" | "ILIKE":
                pattern = rng.choice((f"{start}%", f"{start}_%", f"%{start}", start, "%", "_", ""))
                if "\\" in pattern:
                    pattern = "a%"
                return Condition(f"{one.form} {word} {quoted(pattern)}", word, (), one.kinds)
            case "RLIKE":
                return Condition(f"{one.form} RLIKE '^[a-x]+$'", word, (), one.kinds)
        word = rng.choice(("startswith", "endswith", "contains"))
        return Condition(f"{word}({one.form}, {start_text})", word, (), one.kinds)

    def _null_test(self) -> Condition:
        rng = self._rng
        found = self._reference()
        assert found is not None
        one, kind = found
        forms = ["{} IS NULL", "{} IS NOT NULL", "isnull({})", "isnotnull({})"]
        if kind.group not in ("map",):
            forms += ["{} <=> NULL", "{} = NULL", "{} IN (NULL)", "NOT ({} <=> NULL)"]
        if kind.sql in ("FLOAT", "DOUBLE"):
            forms += ["isnan({})", "NOT isnan({})"]
        form = rng.choice(forms)
        return Condition(form.format(one.form), form.replace("{}", "").strip(), (), one.kinds)

    def _boolean(self) -> Condition | None:
        found = self._reference("boolean")
        if found is None:
            return None
        form = self._rng.choice(
            ("{}", "NOT {}", "{} IS TRUE", "{} IS NOT TRUE", "{} IS FALSE", "{} IS NOT FALSE")
        )
        return Condition(form.format(found[0].form), "boolean column", (), found[0].kinds)

    def _function(self) -> Condition | None:
        rng = self._rng
        group = rng.choice(("number", "number", "text", "time", "binary"))
        found = self._reference(group)
        if found is None:
            return None
        one, kind = found
        value = self._value(kind, _plain_name(one))
        exact = literal(kind.sql, value)
        operator = rng.choice(_COMPARISONS)
        templates = FUNCTIONS[group]
        name, form, may_fail = rng.choice(templates)
        if kind.sql.startswith(("FLOAT", "DOUBLE", "DECIMAL")) and name in WHOLE:
            return None
        text = form.format(c=one.form, v=exact, op=operator)
        return Condition(text, name, (), one.kinds, may_fail)

    def _spelling(self) -> Condition | None:
        """Return a condition with difficult syntax: precedence, comments, escapes, casts."""
        rng = self._rng
        group = rng.choice(("number", "text", "time"))
        found = self._reference(group)
        if found is None:
            return None
        one, kind = found
        form, may_fail = rng.choice([*SPELLINGS["any"], *SPELLINGS[group]])
        if "whole" in form and not pa.types.is_integer(kind.arrow):
            return None
        exact = literal(kind.sql, self._value(kind, _plain_name(one)))
        other = literal(kind.sql, self._value(kind, _plain_name(one)))
        text = form.replace("/* whole */", "")
        text = text.replace("<c>", one.form).replace("<v>", exact).replace("<w>", other)
        return Condition(text, f"spelled {group}", (), one.kinds, may_fail)

    def _nested_value_condition(self) -> Condition | None:
        found = self._reference("array", "map", "struct")
        if found is None:
            return None
        one, kind = found
        name, form, may_fail = self._rng.choice(NESTED[kind.group])
        other = self._rng.choice(list(kind.values))
        text = form.format(
            c=one.form, v=literal(kind.sql, other), op=self._rng.choice(_COMPARISONS)
        )
        return Condition(text, name, (), one.kinds, may_fail)


def _plain_name(one: Expression) -> str | None:
    found = _MARKED.fullmatch(one.form)
    return None if found is None else found[1]
