"""An INSERT of one row of markers, repeated for many rows: one statement with all values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txlake.errors import InvalidRequest
from txlake.sql.brackets import backquote_brackets
from txlake.sql.markers import Arguments, markers
from txlake.sql.tokens import Kind, SourceText, tokenize


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTemplate:
    """`INSERT ... VALUES (?, :b)`, taken apart.

    Attributes:
        head: the text before the row.
        row: the row, each of its markers as `?`.
        names: the row's markers in order: a name, or None for `?`.
    """

    head: str
    row: str
    names: tuple[str | None, ...]

    def repeated(self, rows: Sequence[Arguments]) -> tuple[str, list[object]]:
        """Return the statement with a row for each of `rows`, and the values of its markers.

        Raises InvalidRequest for a row with too few or too many values, or without a name.
        """
        values: list[object] = []
        for place, row in enumerate(rows):
            values += self._values(place, row)
        return f"{self.head}{', '.join([self.row] * len(rows))}", values

    def _values(self, place: int, row: Arguments) -> Sequence[object]:
        """Return one row's values in the order of the markers. Raises as `repeated`."""
        if isinstance(row, Mapping):
            given: set[str | None] = set(row)
            wanted = set(self.names)
            if given != wanted:
                raise InvalidRequest(
                    f"row {place} has values for {_listed(given)}; the statement has markers for "
                    f"{_listed(wanted)}"
                )
            return [row[str(name)] for name in self.names]
        if isinstance(row, str | bytes) or any(name is not None for name in self.names):
            raise InvalidRequest(
                f"row {place} is a {type(row).__name__}: expected a sequence for markers ?, a "
                "mapping for markers :name"
            )
        if len(row) != len(self.names):
            raise InvalidRequest(
                f"row {place} has {len(row)} values for {len(self.names)} markers (?)"
            )
        return list(row)


def _listed(names: set[str | None]) -> str:
    return ", ".join(sorted("?" if name is None else f":{name}" for name in names)) or "nothing"


def row_template(text: str, sample: Arguments) -> RowTemplate | None:
    """Return the parts of an INSERT whose text ends with the one row of its VALUES.

    None for any other statement, and where a marker is outside of the row. `sample`: arguments, by
    whose names markers are told from other colons. Raises InvalidRequest as `tokenize`.
    """
    text = backquote_brackets(text)
    source = SourceText(text, text)
    tokens = [token for token in tokenize(source) if token.kind is not Kind.END]
    if tokens and tokens[-1].text == ";":
        tokens.pop()
    places = [place for place, token in enumerate(tokens) if token.upper == "VALUES"]
    if not places or tokens[0].upper != "INSERT" or any(token.text == ";" for token in tokens):
        return None
    row = tokens[places[-1] + 1 :]
    if not row or row[0].text != "(" or row[-1].text != ")":
        return None
    depth = 0
    for place, token in enumerate(row):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and place < len(row) - 1:
            return None
    start, end = row[0].start, row[-1].end
    found = list(markers(source, sample if isinstance(sample, Mapping) else {}))
    if not found or found[0][1] < start:
        return None
    pieces: list[str] = []
    position = start
    for _, first, last in found:
        pieces += (text[position:first], "?")
        position = last
    pieces.append(text[position:end])
    return RowTemplate(
        head=text[:start], row="".join(pieces), names=tuple(name for name, _, _ in found)
    )
