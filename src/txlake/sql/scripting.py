"""The grammar of BEGIN ATOMIC ... END: statements, variables, branches, loops, handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

from txlake.sql.clauses import QUERY_WORDS, as_query
from txlake.sql.columns import data_type
from txlake.sql.cursor import Cursor
from txlake.sql.references import expression_text, query_text
from txlake.sql.statements import Atomic, SqlText, Statement
from txlake.sql.statements.control import ControlStatement, ExecuteImmediate
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
from txlake.sql.tokens import Kind, SourceText, Token, words

if TYPE_CHECKING:
    from txlake.sql.statements.scripting import Step

StatementRule = Callable[[SourceText, tuple[Token, ...]], Statement]
USER_STATE = "45000"
_TRANSACTION_WORDS = {";", "TRAN", "TRANSACTION", "WORK", "ISOLATION", "READ", "DEFERRABLE", ""}
_SETTINGS = words("TRANSACTION LOCK_TIMEOUT XACT_ABORT SESSION TIME")
_LABELLED = words("BEGIN WHILE LOOP REPEAT FOR")


def atomic(
    source: SourceText, tokens: Sequence[Token], index: int, statement: StatementRule
) -> tuple[Atomic, int]:
    """Parse the block whose BEGIN ATOMIC is at `index`. Return it and the index after it.

    A nested block is part of the same transaction, as in Databricks.

    Raises InvalidRequest for a syntax error, and for a block that isn't closed.
    """
    parser = _BlockParser(source, tokens, index, statement)
    block = parser.block(None)
    parser.expect_closed()
    return Atomic(block.steps, block.handlers), parser.index


def block_depth(tokens: Sequence[Token]) -> int:
    """Return the number of blocks that a text leaves open, from its first BEGIN ATOMIC on."""
    depth = 0
    starts = True  # whether a statement starts here
    for token, following in pairwise(tokens):
        word = token.upper if token.kind is Kind.WORD else ""
        if word == "BEGIN" and (depth or (starts and following.upper == "ATOMIC")):
            depth += 1
        elif word == "END" and starts and depth and following.upper not in _ENDS:
            depth -= 1
        starts = token.text == ";"
    return depth


_ENDS = words("IF CASE WHILE LOOP REPEAT FOR")


class _BlockParser:
    """A parser of steps; the last token is of kind END."""

    def __init__(
        self, source: SourceText, tokens: Sequence[Token], index: int, statement: StatementRule
    ) -> None:
        self.index = index
        self._source = source
        self._tokens = tokens
        self._parse_statement = statement
        self._labels: list[tuple[str, bool]] = []  # (label, whether it is a loop's)
        self._conditions: dict[str, str] = {}

    # Tokens

    def _word(self, ahead: int = 0) -> str:
        token = self._tokens[min(self.index + ahead, len(self._tokens) - 1)]
        return token.upper

    def _accept(self, *expected: str) -> bool:
        """Consume these words if they are next, all or none; return whether they were."""
        if not all(self._word(offset) == word for offset, word in enumerate(expected)):
            return False
        self.index += len(expected)
        return True

    def _expect(self, *expected: str) -> None:
        """Consume these words. Raises InvalidRequest if they aren't next."""
        for word in expected:
            if not self._accept(word):
                self._rest().fail(word)

    def _end(self) -> int:
        """Return the index of the next `;`, or of the end of the text."""
        index = self.index
        while self._tokens[index].text != ";" and self._tokens[index].kind is not Kind.END:
            index += 1
        return index

    def _rest(self) -> Cursor:
        """Return a cursor over the tokens up to the next `;`."""
        end = self._end()
        end_position = self._tokens[end - 1].end if end > self.index else self._tokens[end].start
        closing = Token(Kind.END, "", end_position, end_position)
        return Cursor(self._source, (*self._tokens[self.index : end], closing))

    @contextmanager
    def _step_cursor(self) -> Iterator[Cursor]:
        """Parse a step that ends at the next `;`, with a cursor over its tokens."""
        cursor = self._rest()
        yield cursor
        cursor.expect_end()
        self.index = self._end()

    def _until(self, stop: str, what: str) -> tuple[Token, ...]:
        """Consume at least one token up to the word `stop`, and `stop`; return those before it."""
        cursor = self._rest()
        tokens = cursor.skip([stop])
        if not tokens:
            cursor.fail(what)
        self.index += len(tokens)
        self._expect(stop)
        return tokens

    def _condition(self, stop: str) -> SqlText:
        return expression_text(self._source, self._until(stop, "a condition"))

    # Blocks

    def block(self, label: str | None) -> Block:
        """Parse BEGIN [[NOT] ATOMIC] ... END [label]."""
        opening = self._tokens[self.index]
        self._expect("BEGIN")
        _ = self._accept("ATOMIC") or self._accept("NOT", "ATOMIC")
        handlers: list[Handler] = []
        steps = self._steps(["END"], opening, handlers)
        self._expect_end(label)
        return Block(steps=steps, handlers=tuple(handlers), label=label)

    def expect_closed(self) -> None:
        """Raise InvalidRequest unless a `;` or the end of the text follows the block."""
        self._rest().expect_end()

    def _expect_end(self, label: str | None, *kind: str) -> None:
        """Consume END, these words, and the label if it is next.

        Raises InvalidRequest if END and the words aren't next.
        """
        self._expect("END", *kind)
        if label is not None and self._word() == label.upper():
            self.index += 1

    def _steps(
        self, ends: Sequence[str], opening: Token, handlers: list[Handler] | None = None
    ) -> tuple[Step, ...]:
        """Parse steps, each ended by a `;`, up to one of the words.

        `handlers`: the list to which the block's handlers are added; None where it can't have any.
        Raises InvalidRequest, at `opening`, if none of the words comes.
        """
        steps: list[Step] = []
        while self._word() not in ends:
            if self._accept(";"):
                continue
            if self._tokens[self.index].kind is Kind.END or not self._is_ended():
                raise self._source.error(
                    f"this block is never closed: expected {' or '.join(ends)} after a ;",
                    opening.start,
                )
            if handlers is not None and self._at_handler():
                handlers.append(self._handler())
            elif handlers is not None and self._word() == "DECLARE":
                steps += self._declare()
            else:
                steps += self._step()
            self._expect(";")
        return tuple(steps)

    def _is_ended(self) -> bool:
        return self._tokens[self._end()].text == ";"

    def _step(self) -> tuple[Step, ...]:
        """Parse one step without its `;`.

        A nested block that no label, handler or variable needs gives its steps.
        """
        label = None
        if self._word(1) == ":" and self._word(2) in _LABELLED:
            label = self._rest().name("a label")
            self.index += 2
        opening = self._tokens[self.index]
        match self._word():
            case "BEGIN" if self._word(1) not in _TRANSACTION_WORDS:
                with self._labelled(label, is_loop=False):
                    block = self.block(label)
                scoped = any(isinstance(step, DeclareVariable) for step in block.steps)
                return (block,) if label or block.handlers or scoped else block.steps
            case "WHILE":
                self.index += 1
                while_condition = self._condition("DO")
                return (self._loop(label, opening, "WHILE", while_condition=while_condition),)
            case "LOOP":
                self.index += 1
                return (self._loop(label, opening, "LOOP"),)
            case "REPEAT":
                self.index += 1
                return (self._repeat(label, opening),)
            case "FOR":
                self.index += 1
                return (self._for(label, opening),)
            case "IF":
                self.index += 1
                return (self._if(opening),)
            case "CASE":
                self.index += 1
                return (self._case(opening),)
            case "DECLARE":
                self._rest().refuse("DECLARE stands in a block: put BEGIN ... END around it")
            case "SET" if self._sets_variable():
                return (self._set_variables(),)
            case "LEAVE" | "ITERATE":
                return (self._jump(),)
            case "SIGNAL" | "RESIGNAL":
                return (self._signal(),)
        return (self._plain_statement(),)

    def _plain_statement(self) -> Statement:
        """Parse a statement up to the `;`. Raises InvalidRequest for a transaction statement."""
        cursor = self._rest()
        tokens = (*cursor.remaining(), cursor.last)
        statement = self._parse_statement(self._source, tokens)
        if isinstance(statement, ControlStatement) and not isinstance(statement, ExecuteImmediate):
            raise self._source.error(
                "a BEGIN ATOMIC block is one transaction: no transaction statements inside",
                tokens[0].start,
            )
        self.index = self._end()
        return statement

    # Branches and loops

    def _if(self, opening: Token) -> Conditional:
        """Parse condition THEN steps [ELSEIF ...] [ELSE steps] END IF, after IF."""
        branches = []
        while True:
            condition = self._condition("THEN")
            branches.append(Branch(condition, self._steps(["ELSEIF", "ELSE", "END"], opening)))
            if not self._accept("ELSEIF"):
                break
        else_steps = self._steps(["END"], opening) if self._accept("ELSE") else ()
        self._expect("END", "IF")
        return Conditional(branches=tuple(branches), else_steps=else_steps)

    def _case(self, opening: Token) -> Conditional:
        """Parse [value] WHEN ... THEN steps ... [ELSE steps] END CASE, after CASE.

        With a value each condition compares it.
        """
        subject = None
        if not self._accept("WHEN"):
            subject = self._condition("WHEN")
        branches = []
        while True:
            condition = self._condition("THEN")
            if subject is not None:
                condition = _equality(subject, condition)
            branches.append(Branch(condition, self._steps(["WHEN", "ELSE", "END"], opening)))
            if not self._accept("WHEN"):
                break
        else_steps = self._steps(["END"], opening) if self._accept("ELSE") else None
        self._expect("END", "CASE")
        return Conditional(branches=tuple(branches), else_steps=else_steps)

    def _loop(
        self,
        label: str | None,
        opening: Token,
        kind: str,
        *,
        while_condition: SqlText | None = None,
    ) -> Loop:
        """Parse the steps of a LOOP or WHILE, and END with the kind and label, after LOOP or DO."""
        with self._labelled(label, is_loop=True):
            steps = self._steps(["END"], opening)
        self._expect_end(label, kind)
        return Loop(steps=steps, label=label, while_condition=while_condition)

    def _repeat(self, label: str | None, opening: Token) -> Loop:
        """Parse steps UNTIL condition END REPEAT [label], after REPEAT."""
        with self._labelled(label, is_loop=True):
            steps = self._steps(["UNTIL"], opening)
        self._expect("UNTIL")
        until_condition = self._condition("END")
        self._expect("REPEAT")
        if label is not None and self._word() == label.upper():
            self.index += 1
        return Loop(steps=steps, label=label, until_condition=until_condition)

    def _for(self, label: str | None, opening: Token) -> ForEach:
        """Parse [variable AS] query DO steps END FOR [label], after FOR."""
        variable = None
        if self._word(1) == "AS" and (self._word(2) in QUERY_WORDS or self._word(2) == "("):
            variable = self._rest().name("a variable")
            self.index += 2
        query = query_text(self._source, self._until("DO", "a query"))
        with self._labelled(label, is_loop=True):
            steps = self._steps(["END"], opening)
        self._expect_end(label, "FOR")
        return ForEach(query=query, steps=steps, variable=variable, label=label)

    @contextmanager
    def _labelled(self, label: str | None, *, is_loop: bool) -> Iterator[None]:
        """Keep a label as that of a block around what is parsed meanwhile.

        Raises InvalidRequest if a block around has the same.
        """
        if label is None:
            yield
            return
        if any(label.lower() == known for known, _ in self._labels):
            self._rest().refuse(f"the label {label} is that of a block around this one")
        self._labels.append((label.lower(), is_loop))
        yield
        self._labels.pop()

    def _jump(self) -> Jump:
        """Parse LEAVE label or ITERATE label.

        Raises InvalidRequest for a label of no block around.
        """
        with self._step_cursor() as cursor:
            kind = cursor.expect_any("LEAVE", "ITERATE")
            start = cursor.token
            label = cursor.name("a label").lower()
            if not any(
                label == known and (loops or kind == "LEAVE") for known, loops in self._labels
            ):
                what = "loop" if kind == "ITERATE" else "block or loop"
                cursor.refuse(f"{kind} names the label of a {what} around it", start)
        return Jump("LEAVE" if kind == "LEAVE" else "ITERATE", label)

    # Variables, errors

    def _declare(self) -> tuple[Step, ...]:
        """Parse DECLARE of variables or conditions; a condition is kept and gives no step."""
        with self._step_cursor() as cursor:
            cursor.expect("DECLARE")
            names = cursor.comma_separated(lambda: cursor.name("a variable's name"))
            if cursor.accept("CONDITION"):
                state = USER_STATE
                if cursor.accept("FOR"):
                    state = _sqlstate(cursor)
                self._conditions.update({name.upper(): state for name in names})
                return ()
            kind = None if cursor.at_any("DEFAULT", "=") or cursor.at_end else data_type(cursor)
            default = None
            if cursor.accept_any("DEFAULT", "="):
                default = _value_query(self._source, cursor)
            if kind is None and default is None:
                cursor.fail("a type, or DEFAULT and a value")
        return (DeclareVariable(names=names, data_type=kind, default=default),)

    def _sets_variable(self) -> bool:
        """Return whether SET assigns a variable of the block, rather than a setting."""
        if self._word(1) in {"VAR", "VARIABLE", "("}:
            return True
        return self._word(2) == "=" and self._word(1) not in _SETTINGS

    def _set_variables(self) -> SetVariables:
        """Parse SET [VAR[IABLE]] name = value, or SET ... (names) = (query)."""
        with self._step_cursor() as cursor:
            cursor.expect("SET")
            if cursor.ahead().text != "=":
                cursor.accept_any("VAR", "VARIABLE")
            if not cursor.at("("):
                names: tuple[str, ...] = (cursor.name("a variable"),)
                cursor.expect("=")
                value = _value_query(self._source, cursor)
            else:
                names = cursor.parenthesized(lambda: cursor.name("a variable"))
                cursor.expect("=")
                if not cursor.at("("):
                    cursor.fail("a query in parentheses")
                value = query_text(self._source, cursor.skip()[1:-1])
        return SetVariables(names, value)

    def _at_handler(self) -> bool:
        """Return whether DECLARE { EXIT | CONTINUE } HANDLER is next."""
        return (
            self._word() == "DECLARE"
            and self._word(1) in {"EXIT", "CONTINUE"}
            and self._word(2) == "HANDLER"
        )

    def _handler(self) -> Handler:
        """Parse DECLARE { EXIT | CONTINUE } HANDLER FOR state, ... step."""
        self._expect("DECLARE")
        exits = self._word() == "EXIT"
        self.index += 2
        self._expect("FOR")
        states = [self._handled_state()]
        while self._accept(","):
            states.append(self._handled_state())
        return Handler(exits=exits, states=tuple(states), steps=self._step())

    def _handled_state(self) -> str:
        """Parse one state of a handler.

        A name that was not declared as a condition stands for itself.
        """
        if self._accept("NOT", "FOUND"):
            return "NOT FOUND"
        if self._accept("SQLEXCEPTION"):
            return "SQLEXCEPTION"
        cursor = self._rest()
        mark = cursor.mark
        if cursor.at("SQLSTATE"):
            state = _sqlstate(cursor)
        else:
            name = cursor.name("SQLEXCEPTION, NOT FOUND, SQLSTATE or a condition's name").upper()
            state = self._conditions.get(name, name)
        self.index += cursor.mark - mark
        return state

    def _signal(self) -> Signal:
        """Parse SIGNAL { SQLSTATE 'state' | condition } [SET MESSAGE_TEXT = value], or RESIGNAL.

        Raises InvalidRequest for a condition that wasn't declared.
        """
        with self._step_cursor() as cursor:
            if cursor.accept("RESIGNAL"):
                return Signal(state=None)
            cursor.expect("SIGNAL")
            condition = None
            if cursor.at("SQLSTATE"):
                state = _sqlstate(cursor)
            else:
                start = cursor.token
                condition = cursor.name("SQLSTATE or a condition's name")
                known = self._conditions.get(condition.upper())
                if known is None:
                    cursor.refuse(f"there is no condition {condition}; DECLARE it", start)
                state = known
            message = None
            if cursor.accept("SET"):
                cursor.expect("MESSAGE_TEXT", "=")
                message = _value_query(self._source, cursor)
        return Signal(state=state, condition=condition, message=message)


def _sqlstate(cursor: Cursor) -> str:
    """Parse SQLSTATE [VALUE] 'state', and return the state in capitals."""
    cursor.expect("SQLSTATE")
    cursor.accept("VALUE")
    start = cursor.token
    state = cursor.string("a SQLSTATE in quotes").upper()
    if len(state) != 5 or not state.isalnum() or not state.isascii() or state.startswith("00"):
        cursor.refuse("a SQLSTATE has five digits or letters, and isn't 00000", start)
    return state


def _value_query(source: SourceText, cursor: Cursor) -> SqlText:
    """Parse the rest of the step, an expression, as a one-row query."""
    tokens = cursor.skip()
    if not tokens:
        cursor.fail("a value")
    return as_query(expression_text(source, tokens))


def _equality(subject: SqlText, value: SqlText) -> SqlText:
    """Return the condition that two expressions are equal."""
    start = f"({subject.text}) = ("
    return SqlText(
        f"{start}{value.text})",
        (
            *(reference.moved(1) for reference in subject.references),
            *(reference.moved(len(start)) for reference in value.references),
        ),
    )
