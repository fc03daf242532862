"""The branch that a session uses: found, and missed once it has ended."""

from __future__ import annotations

from txlake.catalog.branch_rows import MAIN_NAME, BranchEntry, of_kind
from txlake.catalog.names import MAIN
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.session.engine import Engine, Handle

_WAP_BRANCH = "spark.wap.branch"


def require_branch(engine: Engine, name: str) -> BranchEntry:
    """Return the branch of that name.

    Raises InvalidRequest if there is none, or its time is over, for a tag, and if the catalog isn't
    a lake's.
    """
    entry = of_kind(engine.catalog.of_lake().branches.find(name), name)
    entry.require_kept(engine.system.now_ms())
    return entry


def engine_on(engine: Engine, name: str) -> Engine:
    """Return the engine with a branch's names, or with the lake's own for `main`.

    Raises as `require_branch`.
    """
    if name.lower() == MAIN_NAME:
        return engine.main
    return engine.main.on_branch(require_branch(engine, name))


def parent_of(engine: Engine, entry: BranchEntry) -> Engine:
    """Return the engine of what a branch was made from; `engine` is main's."""
    return (
        engine if entry.parent == MAIN else engine.on_branch(branch_by_number(engine, entry.parent))
    )


def branch_by_number(engine: Engine, number: int) -> BranchEntry:
    """Return the branch of that number. Raises InvalidRequest if it has ended."""
    for entry in engine.catalog.of_lake().branches.entries():
        if entry.number == number:
            return entry
    raise InvalidRequest("the branch that this one was made from has ended")


def snapshot_on(engine: Engine, handle: Handle, name: str) -> Snapshot:
    """Return the newest version that a table of the same name has on a branch, or had at a tag.

    Raises InvalidRequest for a path table, if the branch or tag, or the table there, doesn't exist,
    and if its time is over.
    """
    if handle.entry is None:
        raise InvalidRequest(
            f"{handle.name} VERSION AS OF {name!r}: branches and tags are of tables that have a "
            "name in the lake; give a version's number"
        )
    there = engine.main
    if name.lower() != MAIN_NAME:
        found = engine.catalog.of_lake().branches.find(name)
        if found is None:
            raise InvalidRequest(
                f"there is no branch or tag {name!r}: SHOW BRANCHES and SHOW TAGS list them"
            )
        found.require_kept(engine.system.now_ms())
        there = engine.main.on_branch(found)
    entry = there.catalog.find(handle.entry.database, handle.entry.name)
    if entry is None:
        raise InvalidRequest(f"{handle.name} doesn't exist on {name!r}")
    return there.at_entry(entry).log.latest()


def require_wap_branch(engine: Engine) -> None:
    """Raise InvalidRequest if Iceberg's setting names another branch than the one in use: what is
    written would be seen where the program doesn't expect it.
    """
    wanted = engine.plane.setting(_WAP_BRANCH, "") if engine.catalog.is_lake else ""
    used = MAIN_NAME if engine.branch is None else engine.branch.name
    if wanted and wanted.lower() != used.lower():
        raise InvalidRequest(
            f"{_WAP_BRANCH} is {wanted!r}, and this session writes on {used!r}: txlake doesn't "
            f"choose the branch by that setting; USE BRANCH {wanted}, or unset it"
        )


def require_branch_kept(engine: Engine) -> None:
    """Raise InvalidRequest if the time of the engine's branch is over."""
    if engine.branch is not None:
        engine.branch.require_kept(engine.system.now_ms())


def require_branch_open(engine: Engine, cause: InvalidRequest | CorruptTable) -> None:
    """Raise InvalidRequest, because of another one, if the engine's branch has ended."""
    branch = engine.branch
    if branch is None:
        return
    now = engine.catalog.of_lake().branches.find(branch.name)
    if now is None or now.id != branch.id:
        raise InvalidRequest(
            f"branch {branch.name!r} has ended: it was published, rebased or dropped. USE BRANCH "
            "again, or another one (SHOW BRANCHES lists them)"
        ) from cause
