"""The pages of branches: the list, one with what it changed and would conflict with, publish, drop.

Owns which branches the history shows: open ones are the catalog's, published ones are found in
main's commits, which name their branch and when it was created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from txlake.catalog.branch_usage import BranchUsage
from txlake.catalog.commits import CommitEntry
from txlake.console.branch_lanes import Line
from txlake.console.page_requests import PageRequest, TemplateValues
from txlake.errors import InvalidRequest, TxlakeError
from txlake.session.branch_changes import BRANCH_TAG, CREATED_TAG
from txlake.session.branch_sizes import kept_alone
from txlake.session.branches import CREATED_MS, NAME, OPERATION, drop_branch, publish
from txlake.session.command import AsRows
from txlake.session.engine import Engine
from txlake.session.views.describe import Rows
from txlake.sql.statements import DescribeBranch, ExplainPublish, Statement

_PUBLISHED_READ_MAX = 50


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a statement, or the `problem` that it met."""

    names: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    problem: str = ""


def list_page(request: PageRequest) -> TemplateValues:
    """Return the open branches, and the tags."""
    used = request.engine.catalog.of_lake().branches.usage()
    return {
        "branches": [one for one in used if not one.entry.is_tag],
        "tags": [one for one in used if one.entry.is_tag],
    }


def branch_page(request: PageRequest) -> TemplateValues:
    """Return a branch with what it changed, and what publishing it would meet now.

    Raises InvalidRequest if there is no branch of the `name`.
    """
    used = _usage(request, request.query.get("name", ""))
    entry = used.entry
    return {
        "used": used,
        "size_in_bytes": kept_alone(request.engine, entry.number).get(entry.number, 0),
        "changes": _answer(request, DescribeBranch(entry.name)),
        "judged": _answer(request, ExplainPublish(entry.name)),
    }


def publish_page(request: PageRequest) -> TemplateValues:
    """Return the values of the page that asks to confirm a publication, with what it would meet.

    Raises InvalidRequest if there is no branch of the `name`.
    """
    used = _usage(request, request.query.get("name", ""))
    judged = _answer(request, ExplainPublish(used.entry.name))
    return {"used": used, "judged": judged}


def drop_page(request: PageRequest) -> TemplateValues:
    """Return the values of the page that asks to confirm that a branch is dropped.

    Raises InvalidRequest if there is no branch of the `name`.
    """
    used = _usage(request, request.query.get("name", ""))
    return {"used": used, "changes": _answer(request, DescribeBranch(used.entry.name))}


def publish_form(request: PageRequest) -> str:
    """Publish a branch, and return the path to redirect to. The commits say who did it.

    Raises InvalidRequest if the branch has changed since the confirmation was asked for, and as
    `publish`.
    """
    used = _confirmed(request)
    assert request.visitor.caller is not None
    note = f"by {request.visitor.caller.name} in the console"
    publish(request.session, used.entry.name, user_metadata=note)
    return "/history"


def drop_form(request: PageRequest) -> str:
    """Drop a branch, and return the path to redirect to.

    Raises InvalidRequest if the branch has changed since the confirmation was asked for, and as
    `drop_branch`.
    """
    used = _confirmed(request)
    drop_branch(request.session, used.entry.name)
    return "/branches"


def _usage(request: PageRequest, name: str) -> BranchUsage:
    """Return the branch of a name. Raises InvalidRequest if there is none, or for a tag."""
    for used in request.engine.catalog.of_lake().branches.usage():
        if used.entry.name.lower() == name.lower() and not used.entry.is_tag:
            return used
    raise InvalidRequest(
        f"there is no branch {name!r:.120}: it was never created, or has been published or dropped"
    )


def _confirmed(request: PageRequest) -> BranchUsage:
    """Return the branch of a form. Raises InvalidRequest if there is none, or another one or more
    commits than when the confirmation was asked for.
    """
    used = _usage(request, request.text("name"))
    if (used.entry.id, str(used.versions)) != (request.text("id"), request.text("versions")):
        raise InvalidRequest(
            f"branch {used.entry.name!r} has changed since you were asked; look at it, and ask "
            "again"
        )
    return used


def _answer(request: PageRequest, statement: Statement) -> Table:
    """Return the rows of a statement; its error as a `problem`."""
    try:
        found = request.session.answer_in(None, statement)(AsRows())
    except TxlakeError as error:
        return Table(problem=f"{type(error).__name__}: {error}")
    assert isinstance(found, Rows)
    return Table(found.schema.names, found.rows)


# The history


def lines_of(engine: Engine, entries: Iterable[CommitEntry]) -> list[Line]:
    """Return the lines of the open branches, and of those that these commits of main published.

    Of commits before the newest fifty that published something, and of commits whose file is gone
    from the log, the branch isn't known; nor is one that was published PER TABLE with one version
    for each.
    """
    open_ones = [
        Line(name=entry.name, number=entry.number, parent=entry.parent, start_ms=entry.created_ms)
        for entry in engine.catalog.of_lake().branches.entries()
        if not entry.is_tag
    ]
    found = (
        _published_line(engine, entry)
        for entry in islice(_publications(entries), _PUBLISHED_READ_MAX)
    )
    return [*open_ones, *(line for line in found if line is not None)]


def _publications(entries: Iterable[CommitEntry]) -> Iterator[CommitEntry]:
    """Yield a commit of each instant at which a branch may have been published: its operation says
    so, or a table got several versions at once (PER TABLE).
    """
    seen: set[tuple[int, str]] = set()
    yielded: set[int] = set()
    for entry in entries:
        key = entry.sequence, entry.table_id
        if entry.sequence not in yielded and (entry.operation == OPERATION or key in seen):
            yielded.add(entry.sequence)
            yield entry
        seen.add(key)


def _published_line(engine: Engine, commit_entry: CommitEntry) -> Line | None:
    """Return the line of the branch that a commit published; None if its file doesn't say."""
    database, _, table = (commit_entry.table or "").partition(".")
    entry = engine.catalog.find(database, table) if table else None
    if entry is None or entry.id != commit_entry.table_id:
        return None
    try:
        commit = engine.at_entry(entry).log.commit(commit_entry.version)
    except TxlakeError:
        return None
    info = {} if commit is None or commit.info is None else commit.info.values
    facts: dict[str, object] = {}
    for key, name, created in (
        ("tags", BRANCH_TAG, CREATED_TAG),
        ("operationParameters", NAME, CREATED_MS),
    ):
        values = info.get(key)
        if isinstance(values, dict) and name in values:
            facts = {NAME: values[name], CREATED_MS: values.get(created)}
    if not facts:
        return None
    start = str(facts[CREATED_MS])
    return Line(
        name=str(facts[NAME]),
        start_ms=int(start) if start.isdecimal() else commit_entry.time_ms,
        end_ms=commit_entry.time_ms,
        instant=commit_entry.sequence,
    )
