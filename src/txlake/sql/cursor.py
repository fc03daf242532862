"""A cursor over one statement's tokens: the primitives of the grammar rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from txlake.sql.statements import Table, TableName, TablePath
from txlake.sql.strings import string_value
from txlake.sql.tokens import Kind, SourceText, Token, describe, whole_number

T = TypeVar("T")

_PARTS_MAX = 3
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Cursor:
    """The tokens of one statement, read from left to right. The last token is of kind END.

    Every method that expects something, and so every rule of the grammar, raises InvalidRequest
    with line and column where the text has something else.
    """

    def __init__(self, source: SourceText, tokens: tuple[Token, ...]) -> None:
        self.source = source
        self._tokens = tokens
        self._index = 0

    # --- looking ahead
    # ------------------------------------------------------------------------------

    @property
    def first(self) -> Token:
        """The statement's first token."""
        return self._tokens[0]

    @property
    def last(self) -> Token:
        """The token of kind END."""
        return self._tokens[-1]

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._index]

    def ahead(self, distance: int = 1) -> Token:
        """Return the token `distance` after the next; END beyond the last."""
        return self._tokens[min(self._index + distance, len(self._tokens) - 1)]

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these words, in capitals, or signs.

        A name in quotes or a string is no word.
        """
        if not self._is(self.token, words[0]):
            return False
        return all(self._is(self.ahead(i), word) for i, word in enumerate(words[1:], start=1))

    def at_any(self, *words: str) -> bool:
        """Return whether the next token is one of these words or signs."""
        token = self.token
        return token.upper in words and (token.kind is Kind.WORD or token.kind is Kind.SYMBOL)

    @property
    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.token.kind is Kind.END

    @property
    def mark(self) -> int:
        """The position, for `back`."""
        return self._index

    def back(self, mark: int) -> None:
        """Move the cursor to a position that `mark` returned."""
        self._index = mark

    # --- consuming -------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Consume and return the next token; END is never consumed."""
        token = self.token
        if token.kind is not Kind.END:
            self._index += 1
        return token

    def accept(self, *words: str) -> bool:
        """Consume these words if they are next, all or none; return whether they were."""
        if not self.at(*words):
            return False
        self._index += len(words)
        return True

    def accept_any(self, *words: str) -> str | None:
        """Consume the next token if it is one of these words.

        Return the word, in capitals; None if it isn't.
        """
        return self.advance().upper if self.at_any(*words) else None

    def expect(self, *words: str) -> None:
        """Consume these words. Raises InvalidRequest if they aren't next."""
        for word in words:
            if not self.accept(word):
                self.fail(word)

    def expect_any(self, *words: str) -> str:
        """Consume and return one of these words. Raises InvalidRequest if none is next."""
        word = self.accept_any(*words)
        if word is None:
            self.fail(" or ".join(words))
        return word

    def expect_end(self) -> None:
        """Raise InvalidRequest unless all tokens are consumed."""
        if not self.at_end:
            self.fail("the end of the statement")

    def fail(self, expected: str, token: Token | None = None) -> NoReturn:
        """Raise InvalidRequest: what was expected, and the token found instead."""
        actual = token or self.token
        raise self.source.error(f"expected {expected}, found {describe(actual)}", actual.start)

    def refuse(self, problem: str, token: Token | None = None) -> NoReturn:
        """Raise InvalidRequest for valid syntax that isn't supported or makes no sense."""
        raise self.source.error(problem, (token or self.token).start)

    # --- values -------------------------------------------------------------------------------

    def name(self, what: str = "a name") -> str:
        """Parse one identifier, plain or in backquotes."""
        if self.token.kind not in {Kind.WORD, Kind.QUOTED}:
            self.fail(what)
        return self.advance().name

    def path(self, what: str = "a column") -> tuple[str, ...]:
        """Parse identifiers joined by dots."""
        parts = [self.name(what)]
        while self.accept("."):
            parts.append(self.name(what))
        return tuple(parts)

    def string(self, what: str = "a string") -> str:
        """Parse a string literal, or adjacent ones, and return its value."""
        if self.token.kind is not Kind.STRING:
            self.fail(what)
        tokens = [self.advance()]
        while self.token.kind is Kind.STRING:
            tokens.append(self.advance())
        return string_value(tokens)

    def integer(self, what: str = "a whole number") -> int:
        """Parse a whole number, with or without a minus sign."""
        negative = self.accept("-")
        value = whole_number(self.token.text) if self.token.kind is Kind.NUMBER else None
        if value is None:
            self.fail(what)
        self.advance()
        return -value if negative else value

    def table(self, what: str = "a table's name") -> Table:
        """Parse a table: a name of one to three parts, or ``delta.`/place` ``."""
        first = self.token
        parts = self.path(what)
        quoted_location = self._tokens[self._index - 1].kind is Kind.QUOTED
        if len(parts) == 2 and first.upper == "DELTA" and quoted_location:
            return TablePath(parts[1])
        if len(parts) > _PARTS_MAX:
            self.refuse(
                f"a table's name has one to three parts, found {len(parts)} in {'.'.join(parts)}",
                first,
            )
        return TableName(parts)

    def table_or_place(self) -> Table:
        """Parse a table, or its location as a string, as Delta's utility commands take it."""
        if self.token.kind is Kind.STRING:
            return TablePath(self.string())
        return self.table()

    def comma_separated(self, element: Callable[[], T]) -> tuple[T, ...]:
        """Parse elements separated by commas, at least one."""
        elements = [element()]
        while self.accept(","):
            elements.append(element())
        return tuple(elements)

    def parenthesized(self, element: Callable[[], T]) -> tuple[T, ...]:
        """Parse elements separated by commas in parentheses, at least one."""
        self.expect("(")
        elements = self.comma_separated(element)
        if not self.accept(")"):
            self.fail(", or )")
        return elements

    # --- ranges -------------------------------------------------------------------------------

    def skip(self, stops: Iterable[str] = (), *, comma: bool = False) -> tuple[Token, ...]:
        """Consume and return the tokens up to a stop (or a comma) outside parentheses and CASE ...
        END.

        A closing parenthesis without an opening one is a stop too, and so is the end. The stop
        itself isn't consumed. Raises InvalidRequest for a parenthesis that isn't closed.
        """
        stopping = frozenset(stops)
        start = self._index
        open_signs: list[Token] = []
        cases = 0
        while not self.at_end:
            token = self.token
            if token.text in _CLOSING:
                open_signs.append(token)
            elif token.text in {")", "]", "}"}:
                if not open_signs:
                    break
                if _CLOSING[open_signs[-1].text] != token.text:
                    self.fail(_CLOSING[open_signs[-1].text])
                open_signs.pop()
            elif not open_signs and not (self._index > start and self._after_dot()):
                if token.upper == "CASE" and token.kind is Kind.WORD:
                    cases += 1
                elif token.upper == "END" and token.kind is Kind.WORD and cases:
                    cases -= 1
                elif not cases and (
                    (comma and token.text == ",")
                    or (token.kind is Kind.WORD and token.upper in stopping)
                ):
                    break
            self._index += 1
        if open_signs:
            self.refuse(f"this {open_signs[-1].text} is never closed", open_signs[-1])
        return self._tokens[start : self._index]

    def since(self, mark: int) -> tuple[Token, ...]:
        """Return the tokens consumed since a position."""
        return self._tokens[mark : self._index]

    def remaining(self) -> tuple[Token, ...]:
        """Return the remaining tokens without END; nothing is consumed."""
        return self._tokens[self._index : -1]

    def _after_dot(self) -> bool:
        return self._tokens[self._index - 1].text == "."

    @staticmethod
    def _is(token: Token, word: str) -> bool:
        return token.upper == word and (token.kind is Kind.WORD or token.kind is Kind.SYMBOL)
