"""Scripts, BEGIN ATOMIC ... END: the order of steps, branches, loops, scopes and handlers.

A script's statements, queries and variables are its environment's business (`script_session`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from txlake.errors import InvalidRequest
from txlake.sql.statements import SqlText, Statement
from txlake.sql.statements.scripting import (
    Block,
    Conditional,
    DeclareVariable,
    ForEach,
    Handler,
    Jump,
    Loop,
    SetVariables,
    Signal,
)

if TYPE_CHECKING:
    from txlake.sql.statements.scripting import Step


class ScriptEnvironment(Protocol):
    """What a script's steps act on: statements, queries and variables of a session."""

    def run(self, statement: Statement) -> None:
        """Run a statement."""

    def truth(self, condition: SqlText) -> bool:
        """Return whether a condition is true; null is not."""

    def text(self, query: SqlText) -> str:
        """Return the text that is a query's one value."""

    def constant(self, expression: SqlText) -> SqlText:
        """Return the present value of an expression of constants and variables, as a constant."""

    def declare(self, name: str, data_type: str | None, default: SqlText | None) -> object:
        """Declare a variable; return what `restore` needs to undo that."""

    def restore(self, name: str, before: object) -> None:
        """Drop a variable, and restore the one that it replaced."""

    def assign(self, names: Sequence[str], query: SqlText) -> None:
        """Assign the values of a query's one row to variables; nulls if it has no row."""

    def each(self, query: SqlText, variable: str | None) -> Iterator[None]:
        """Yield once for each row of a query, whose columns are variables meanwhile."""

    def mark(self) -> Callable[[], None]:
        """Return a function that undoes the changes made after this call."""


class Signaled(InvalidRequest):
    """What SIGNAL raises: `state` is its SQLSTATE."""

    def __init__(self, message: str, state: str) -> None:
        super().__init__(message)
        self.state = state


@dataclass(eq=False, slots=True)
class _Scope:
    """A block that runs, with what it does about failures."""

    handlers: tuple[Handler, ...]


class _Exit(Exception):
    """An EXIT handler was found: the blocks up to its own end."""

    def __init__(self, scope: _Scope, handler: Handler, error: InvalidRequest) -> None:
        super().__init__()
        self.scope = scope
        self.handler = handler
        self.error = error


class _Jumped(Exception):
    """LEAVE or ITERATE is on its way to its label."""

    def __init__(self, jump: Jump) -> None:
        super().__init__()
        self.jump = jump


class Script:
    """Runs one block, once."""

    def __init__(self, environment: ScriptEnvironment) -> None:
        self._environment = environment
        self._scopes: list[_Scope] = []
        self._handled: list[InvalidRequest] = []

    def run(self, block: Block) -> None:
        """Run a block. Raises the errors that no handler of the block catches.

        Variables of the block end with it, and the ones that they hid have their values again.
        """
        scope = _Scope(block.handlers)
        declared: list[tuple[str, object]] = []
        depth = len(self._scopes)
        self._scopes.append(scope)
        try:
            try:
                self._steps(block.steps, declared)
            except _Exit as exit_:
                if exit_.scope is not scope:
                    raise
                del self._scopes[depth:]
                self._act(exit_.handler, exit_.error)
        except _Jumped as jumped:
            if jumped.jump.kind == "ITERATE" or not _is_for(jumped, block.label):
                raise
        finally:
            del self._scopes[depth:]
            for name, before in reversed(declared):
                self._environment.restore(name, before)

    def _steps(
        self, steps: Sequence[Step], declared: list[tuple[str, object]] | None = None
    ) -> None:
        """Run the steps in order; declarations are added to `declared`."""
        for step in steps:
            if isinstance(step, DeclareVariable):
                assert declared is not None, "the parser has it at the head of a block"
                self._guarded(lambda one=step: self._declare(one, declared))  # type: ignore[misc]
            else:
                self._step(step)

    def _declare(self, step: DeclareVariable, declared: list[tuple[str, object]]) -> None:
        """Declare the variables of a step."""
        for name in step.names:
            before = self._environment.declare(name, step.data_type, step.default)
            declared.append((name, before))

    def _step(self, step: Step) -> None:
        """Run one step, within the handlers of its blocks. Raises _Jumped for ITERATE and LEAVE,
        and errors that no handler catches.
        """
        match step:
            case Block():
                self.run(step)
            case Conditional():
                self._choose(step)
            case Loop():
                self._loop(step)
            case ForEach():
                for _ in self._rows(step):
                    if not self._once(step.steps, step.label):
                        break
            case Jump():
                raise _Jumped(step)
            case SetVariables(names, value):
                self._guarded(lambda: self._environment.assign(names, value))
            case Signal():
                self._guarded(lambda: self._signal(step))
            case DeclareVariable():
                raise AssertionError(step)
            case _:
                self._guarded(lambda: self._environment.run(step))

    # Branches and loops

    def _choose(self, step: Conditional) -> None:
        """Run the steps of the first branch whose condition is true, or of ELSE.

        A CASE without either raises Signaled, for handlers to catch. Nothing is run if a handler
        caught the error of a condition.
        """
        for branch in step.branches:
            found = self._truth(branch.condition)
            if found is None:
                return
            if found:
                self._steps(branch.steps)
                return
        if step.else_steps is None:
            self._guarded(_no_branch)
            return
        self._steps(step.else_steps)

    def _loop(self, step: Loop) -> None:
        """Run a loop until its condition or LEAVE ends it, or a handler caught a condition's
        error.
        """
        while step.while_condition is None or self._truth(step.while_condition):
            if not self._once(step.steps, step.label):
                return
            if step.until_condition is not None and self._truth(step.until_condition) is not False:
                return

    def _once(self, steps: Sequence[Step], label: str | None) -> bool:
        """Run a loop's steps once; return whether the loop goes on after LEAVE or ITERATE."""
        try:
            self._steps(steps)
        except _Jumped as jumped:
            if not _is_for(jumped, label):
                raise
            return jumped.jump.kind == "ITERATE"
        return True

    def _rows(self, step: ForEach) -> Iterator[None]:
        """Yield once for each row of a FOR loop's query, whose columns are variables meanwhile."""
        rows = self._environment.each(step.query, step.variable)
        try:
            while self._guarded(lambda: next(rows)):
                yield
        except StopIteration:
            return
        finally:
            close = getattr(rows, "close", None)
            if close is not None:
                close()

    def _truth(self, condition: SqlText) -> bool | None:
        """Return whether a condition is true; None if it failed and a handler caught the error."""
        found: list[bool] = []
        self._guarded(lambda: found.append(self._environment.truth(condition)))
        return found[0] if found else None

    # Failures

    def _signal(self, step: Signal) -> None:
        """Raise the error of a SIGNAL, or the one that the handler handles (RESIGNAL)."""
        if step.state is None:
            if not self._handled:
                raise InvalidRequest("RESIGNAL stands in a handler: there is no error here")
            raise self._handled[-1]
        said = step.condition or "the script raised this error"
        if step.message is not None:
            said = self._environment.text(step.message)
        raise Signaled(f"[SQLSTATE {step.state}] {said}", step.state)

    def _guarded(self, work: Callable[[], object]) -> bool:
        """Run a step; return False if a CONTINUE handler caught its error.

        If there are handlers, what the step did before it failed is undone first. An EXIT handler
        ends its block. Raises an InvalidRequest that no handler catches, and all other errors.
        """
        undo = None
        if any(scope.handlers for scope in self._scopes):
            undo = self._environment.mark()
        try:
            work()
        except InvalidRequest as error:
            found = self._handler_of(error)
            if undo is None or found is None:
                raise
            undo()
            depth, handler = found
            if handler.exits:
                raise _Exit(self._scopes[depth], handler, error) from error
            inner = self._scopes[depth:]
            del self._scopes[depth:]
            try:
                self._act(handler, error)
            finally:
                self._scopes += inner
            return False
        return True

    def _act(self, handler: Handler, error: InvalidRequest) -> None:
        """Run a handler's steps for the error that it catches."""
        self._handled.append(error)
        try:
            self._steps(handler.steps)
        finally:
            self._handled.pop()

    def _handler_of(self, error: InvalidRequest) -> tuple[int, Handler] | None:
        """Return an error's handler and the depth of its block; None without one.

        It is the most specific one in the innermost block that has any.
        """
        names = _names_of(error)
        for depth in range(len(self._scopes) - 1, -1, -1):
            handlers = self._scopes[depth].handlers
            for wanted in names:
                for handler in handlers:
                    if wanted in handler.states:
                        return depth, handler
        return None


def _is_for(jumped: _Jumped, label: str | None) -> bool:
    return label is not None and jumped.jump.label == label.lower()


def _no_branch() -> None:
    raise Signaled("[SQLSTATE 20000] no branch of this CASE is taken, and it has no ELSE", "20000")


def _names_of(error: InvalidRequest) -> list[str]:
    """Return the names by which handlers catch an error, the most specific first.

    The condition's, the SQLSTATE, and SQLEXCEPTION or NOT FOUND.
    """
    cause = error.__cause__
    condition = getattr(cause, "getCondition", lambda: None)()
    state = getattr(cause, "getSqlState", lambda: None)()
    if isinstance(error, Signaled):
        condition, state = None, error.state
    names = [name for name in (condition, state) if isinstance(name, str)]
    general = "NOT FOUND" if isinstance(state, str) and state.startswith("02") else "SQLEXCEPTION"
    return [*names, general]
