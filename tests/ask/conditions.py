"""Conditions over a table's columns, drawn: comparisons, lists, patterns, functions, and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from tests.ask.forms import FUNCTIONS, NESTED, SPELLED, WHOLE
from tests.ask.kinds import EVERY, KINDS, Kind, literal, quoted
from tests.ask.tables import Column

_MARKED = re.compile("\u27e6(.*?)\u27e7")
_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, or a part of one.

    Attributes:
        form: its text; `{}` stands for each part, a column's name stands between marks.
        operator: its outermost operator, by which it is counted.
        kinds: the types of the columns that it names itself.
        may_fail: whether Spark may end in an error for some value, in ANSI mode.
    """

    form: str
    operator: str
    parts: tuple[Condition, ...] = ()
    kinds: tuple[str, ...] = ()
    may_fail: bool = False

    def text(self, qualifier: str = "") -> str:
        """The condition in SQL, its columns qualified."""
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
        """Whether it or a part of it may end in an error."""
        return self.may_fail or any(part.can_fail for part in self.parts)

    def operators(self) -> Iterator[str]:
        """Its operators, those of its parts included."""
        yield self.operator
        for part in self.parts:
            yield from part.operators()

    def all_kinds(self) -> Iterator[str]:
        """The types of all columns that it names."""
        yield from self.kinds
        for part in self.parts:
            yield from part.all_kinds()

    def simpler(self) -> Iterator[Condition]:
        """Conditions with one part less, the simplest first."""
        yield from self.parts
        if self.operator in ("AND", "OR") and len(self.parts) > 2:
            for place in range(len(self.parts)):
                yield _joined(self.operator, self.parts[:place] + self.parts[place + 1 :])
        for place, part in enumerate(self.parts):
            for other in part.simpler():
                yield replace(self, parts=(*self.parts[:place], other, *self.parts[place + 1 :]))


def negated(one: Condition) -> Condition:
    """NOT."""
    return Condition("NOT ({})", "NOT", (one,))


def unknown(one: Condition) -> Condition:
    """IS NULL of a condition."""
    return Condition("({}) IS NULL", "IS NULL", (one,))


def _joined(word: str, parts: Sequence[Condition]) -> Condition:
    return Condition(f" {word} ".join(["({})"] * len(parts)), word, tuple(parts))


@dataclass(frozen=True, slots=True)
class Expression:
    """A value: its text with marks, its type's group or name, and whether it may fail."""

    form: str
    sql: str
    kinds: tuple[str, ...] = ()
    may_fail: bool = False


class Drawing:
    """Draws conditions over these columns."""

    def __init__(
        self,
        luck: Random,
        columns: Sequence[Column],
        pools: Mapping[str, Sequence[Any]],
        *,
        folds_case: bool = True,
    ) -> None:
        self._luck = luck
        self._columns = columns
        self._pools = pools
        self._folds_case = folds_case

    def condition(self, depth: int | None = None) -> Condition:
        """A condition; simple ones are the most frequent."""
        if depth is None:
            depth = self._luck.choice((0, 0, 0, 1, 1, 2, 3))
        if depth == 0:
            return self._leaf()
        chance = self._luck.random()
        if chance < 0.3:
            return negated(self.condition(depth - 1))
        if chance < 0.9:
            count = self._luck.choice((2, 2, 2, 3))
            word = self._luck.choice(("AND", "OR"))
            return _joined(word, [self.condition(depth - 1) for _ in range(count)])
        if chance < 0.94:
            return unknown(self.condition(depth - 1))
        form = self._luck.choice(
            ("({}) IS TRUE", "({}) IS NOT TRUE", "({}) IS FALSE", "({}) IS NOT NULL", "({}) = true")
        )
        return Condition(form, form[5:], (self.condition(depth - 1),))

    # Values

    def _name(self, column: Column) -> str:
        name = column.name
        if self._folds_case and self._luck.random() < 0.05:
            name = name.upper()
            if len(name) != len(column.name):
                name = column.name
        return f"\u27e6{name}\u27e7"

    def _reference(self, *groups: str) -> tuple[Expression, Kind] | None:
        """A column or a field of a struct, of one of the groups; of any without one."""
        luck = self._luck
        found: list[tuple[Column, str | None]] = []
        for column in self._columns:
            if not groups or column.kind.group in groups:
                found.append((column, None))
            for name, sql in column.kind.fields.items():
                if not groups or EVERY[sql].group in groups:
                    found.append((column, name))
        if not found:
            return None
        column, below = luck.choice(found)
        if below is None:
            kind = column.kind
            return Expression(self._name(column), kind.sql, (kind.sql,)), kind
        kind = EVERY[column.kind.fields[below]]
        return Expression(f"{self._name(column)}.{below}", kind.sql, (column.kind.sql,)), kind

    def _value(self, kind: Kind, name: str | None = None) -> Any:
        """A value of a type, mostly one that the column has."""
        pool = self._pools.get(name or "", ()) if self._luck.random() < 0.7 else ()
        fitting = [one for one in pool if one is not None]
        return self._luck.choice(fitting or list(kind.values))

    def _literal(self, kind: Kind, value: Any) -> tuple[str, bool]:
        """The text of a value to compare a column of the type with; whether it may fail."""
        luck = self._luck
        exact = literal(kind.sql, value)
        chance = luck.random()
        if chance < 0.35:
            return exact, False
        match kind.group:
            case "number":
                return self._number(kind, value, exact)
            case "text":
                forms = (exact, exact, f"concat({exact}, '')", f"CAST({exact} AS STRING)")
                return luck.choice(forms), False
            case "time":
                return self._time(kind, value, exact)
            case "binary":
                shown = [exact]
                if all(32 < byte < 127 and byte != 39 for byte in value):
                    shown.append(f"CAST('{value.decode()}' AS BINARY)")
                return luck.choice(shown), False
        return exact, False

    def _number(self, kind: Kind, value: Any, exact: str) -> tuple[str, bool]:
        luck = self._luck
        is_whole = isinstance(value, int) or (value == value and abs(value) < 1e15)
        whole = is_whole and value == int(value)
        forms = [exact, f"({value})" if isinstance(value, int | Decimal) else exact]
        if whole:
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
        if luck.random() < 0.01:
            forms = ["1e400"]
        found = luck.choice(forms)
        number_text = found.strip("()")
        if number_text.startswith("-"):
            found = f"({number_text})"
        return found, found.startswith("'") or "CAST('" in found

    def _time(self, kind: Kind, value: Any, exact: str) -> tuple[str, bool]:
        luck = self._luck
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
        return luck.choice(forms), False

    # Conditions without parts

    def _leaf(self) -> Condition:
        luck = self._luck
        makers: Sequence[tuple[int, Callable[[], Condition | None]]] = (
            (30, self._compared),
            (10, self._two_columns),
            (12, self._listed),
            (8, self._between),
            (10, self._pattern),
            (10, self._nulls),
            (5, self._boolean),
            (25, self._function),
            (12, self._spelled),
            (6, self._nested),
        )
        weights = [weight for weight, _ in makers]
        for _ in range(8):
            [(_, maker)] = luck.choices(makers, weights)
            found = maker()
            if found is not None:
                return found
        return self._nulls()

    def _compared(self) -> Condition | None:
        luck = self._luck
        found = self._reference("number", "text", "time", "binary", "boolean")
        if found is None:
            return None
        one, kind = found
        value = self._value(kind, _plain_name(one))
        text, may_fail = self._literal(kind, value)
        if luck.random() < 0.04:
            text, may_fail = self._foreign_literal(kind), True
        operator = luck.choice(_COMPARISONS)
        form = f"{one.form} {operator} {text}"
        if luck.random() < 0.2:
            form = f"{text} {operator} {one.form}"
        return Condition(form, operator, (), one.kinds, may_fail)

    def _foreign_literal(self, kind: Kind) -> str:
        other = self._luck.choice([one for one in KINDS.values() if one.group != "map"])
        return literal(other.sql, self._luck.choice(list(other.values)))

    def _two_columns(self) -> Condition | None:
        luck = self._luck
        group = luck.choice(("number", "text", "time", "binary", "boolean"))
        one, other = self._reference(group), self._reference(group)
        if one is None or other is None:
            return None
        operator = luck.choice(_COMPARISONS)
        form = f"{one[0].form} {operator} {other[0].form}"
        return Condition(form, f"{operator} columns", (), (*one[0].kinds, *other[0].kinds))

    def _listed(self) -> Condition | None:
        luck = self._luck
        found = self._reference("number", "text", "time", "binary", "boolean")
        if found is None:
            return None
        one, kind = found
        count = luck.choice((1, 2, 3, 3, 70))
        texts, may_fail = [], False
        for _ in range(count):
            text, fails = self._literal(kind, self._value(kind, _plain_name(one)))
            if count > 10:
                text, fails = literal(kind.sql, self._value(kind)), False
            texts.append(text)
            may_fail = may_fail or fails
        if luck.random() < 0.2:
            texts.insert(luck.randint(0, len(texts)), "NULL")
        word = luck.choice(("IN", "IN", "NOT IN"))
        return Condition(f"{one.form} {word} ({', '.join(texts)})", word, (), one.kinds, may_fail)

    def _between(self) -> Condition | None:
        found = self._reference("number", "text", "time")
        if found is None:
            return None
        one, kind = found
        ends = [self._literal(kind, self._value(kind, _plain_name(one))) for _ in range(2)]
        word = self._luck.choice(("BETWEEN", "NOT BETWEEN"))
        form = f"{one.form} {word} {ends[0][0]} AND {ends[1][0]}"
        return Condition(form, word, (), one.kinds, any(fails for _, fails in ends))

    def _pattern(self) -> Condition | None:
        luck = self._luck
        found = (
            self._reference("text") if luck.random() < 0.9 else self._reference("number", "time")
        )
        if found is None:
            return None
        one, _ = found
        value = str(self._value(KINDS["STRING"], _plain_name(one)))
        start = value[: luck.choice((0, 1, 2, 32, 33))]
        start_text = quoted(start)
        word = luck.choice(("LIKE", "NOT LIKE", "LIKE", "RLIKE", "ILIKE", "startswith", "contains"))
        match word:
            case "LIKE" | "NOT LIKE" | "ILIKE":
                pattern = luck.choice((f"{start}%", f"{start}_%", f"%{start}", start, "%", "_", ""))
                if "\\" in pattern:
                    pattern = "a%"
                return Condition(f"{one.form} {word} {quoted(pattern)}", word, (), one.kinds)
            case "RLIKE":
                return Condition(f"{one.form} RLIKE '^[a-x]+$'", word, (), one.kinds)
        word = luck.choice(("startswith", "endswith", "contains"))
        return Condition(f"{word}({one.form}, {start_text})", word, (), one.kinds)

    def _nulls(self) -> Condition:
        luck = self._luck
        found = self._reference()
        assert found is not None
        one, kind = found
        forms = ["{} IS NULL", "{} IS NOT NULL", "isnull({})", "isnotnull({})"]
        if kind.group not in ("map",):
            forms += ["{} <=> NULL", "{} = NULL", "{} IN (NULL)", "NOT ({} <=> NULL)"]
        if kind.sql in ("FLOAT", "DOUBLE"):
            forms += ["isnan({})", "NOT isnan({})"]
        form = luck.choice(forms)
        return Condition(form.format(one.form), form.replace("{}", "").strip(), (), one.kinds)

    def _boolean(self) -> Condition | None:
        found = self._reference("boolean")
        if found is None:
            return None
        form = self._luck.choice(
            ("{}", "NOT {}", "{} IS TRUE", "{} IS NOT TRUE", "{} IS FALSE", "{} IS NOT FALSE")
        )
        return Condition(form.format(found[0].form), "boolean column", (), found[0].kinds)

    def _function(self) -> Condition | None:
        luck = self._luck
        group = luck.choice(("number", "number", "text", "time", "binary"))
        found = self._reference(group)
        if found is None:
            return None
        one, kind = found
        value = self._value(kind, _plain_name(one))
        exact = literal(kind.sql, value)
        operator = luck.choice(_COMPARISONS)
        templates = FUNCTIONS[group]
        name, form, may_fail = luck.choice(templates)
        if kind.sql.startswith(("FLOAT", "DOUBLE", "DECIMAL")) and name in WHOLE:
            return None
        text = form.format(c=one.form, v=exact, op=operator)
        return Condition(text, name, (), one.kinds, may_fail)

    def _spelled(self) -> Condition | None:
        """What a parser may take for something else: precedence, comments, escapes, casts."""
        luck = self._luck
        group = luck.choice(("number", "text", "time"))
        found = self._reference(group)
        if found is None:
            return None
        one, kind = found
        form, may_fail = luck.choice([*SPELLED["any"], *SPELLED[group]])
        if "whole" in form and not pa.types.is_integer(kind.arrow):
            return None
        exact = literal(kind.sql, self._value(kind, _plain_name(one)))
        other = literal(kind.sql, self._value(kind, _plain_name(one)))
        text = form.replace("/* whole */", "")
        text = text.replace("<c>", one.form).replace("<v>", exact).replace("<w>", other)
        return Condition(text, f"spelled {group}", (), one.kinds, may_fail)

    def _nested(self) -> Condition | None:
        found = self._reference("array", "map", "struct")
        if found is None:
            return None
        one, kind = found
        name, form, may_fail = self._luck.choice(NESTED[kind.group])
        other = self._luck.choice(list(kind.values))
        text = form.format(
            c=one.form, v=literal(kind.sql, other), op=self._luck.choice(_COMPARISONS)
        )
        return Condition(text, name, (), one.kinds, may_fail)


def _plain_name(one: Expression) -> str | None:
    found = _MARKED.fullmatch(one.form)
    return None if found is None else found[1]
