"""The branch that a session uses: chosen, found, and missed once it has ended."""

from __future__ import annotations

from dataclasses import dataclass

from txlake.catalog.branch_rows import MAIN_NAME, BranchEntry, of_kind
from txlake.catalog.names import MAIN
from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.branching import branch_place, split_place
from txlake.session.engine import Engine, Handle
from txlake.sql.statements import TablePath

WAP_BRANCH = "spark.wap.branch"
"""Iceberg's setting of a Spark session for the branch that it writes and reads."""


class Line:
    """The line of the lake's history that a session works on: main's, or a branch's.

    USE BRANCH chooses it. If `follows_setting`, Iceberg's setting of the Spark session overrides
    that for as long as it is set.
    """

    __slots__ = ("_by_setting", "chosen", "follows_setting")

    def __init__(self, engine: Engine, *, follows_setting: bool) -> None:
        self.chosen = engine
        self.follows_setting = follows_setting
        self._by_setting: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine with the names of the line."""
        return self.chosen if self._by_setting is None else self._by_setting

    def choose(self, name: str) -> None:
        """Take a branch, or `main`.

        Raises as `engine_on`, and InvalidRequest where the setting names another one.
        """
        wanted = _wap_branch(self.chosen) if self.follows_setting else ""
        if wanted and wanted.lower() != name.lower():
            raise InvalidRequest(
                f"USE BRANCH {name}: {WAP_BRANCH} is {wanted!r}, and decides for as long as it is "
                f"set; RESET {WAP_BRANCH} first, or set it to {name!r}"
            )
        self.chosen = engine_on(self.chosen, name)

    def follow(self, held: Engine | None, *, missing_ok: bool = False) -> None:
        """Take what the setting names now; what USE BRANCH chose if it isn't set.

        `held`: the engine of the open transaction, whose line stays. With `missing_ok` the name of
        no branch counts as unset.

        Raises InvalidRequest for the name of no branch and of a tag, and in a transaction if the
        setting was changed since it began.
        """
        if not self.follows_setting:
            return
        wanted = _wap_branch(self.chosen)
        if held is not None:
            is_changed = self._by_setting is not None if not wanted else not _is_on(held, wanted)
            if is_changed:
                raise InvalidRequest(
                    f"{WAP_BRANCH} is {wanted or 'unset'!r} now, and the open transaction belongs "
                    f"to {_name_of(held)!r}, where it began: COMMIT or ROLLBACK first, or set it "
                    f"to {_name_of(held)!r} again"
                )
            return
        self._by_setting = self._set_to(wanted, missing_ok=missing_ok) if wanted else None

    def forget_setting(self) -> None:
        """Take what USE BRANCH chose, until the setting is followed again."""
        self._by_setting = None

    def _set_to(self, name: str, *, missing_ok: bool) -> Engine | None:
        """Return the engine of the branch that the setting names, the present one if it is that
        branch's; None for no branch if `missing_ok`. Raises InvalidRequest for no branch, and for a
        tag.
        """
        if name.lower() == MAIN_NAME:
            return self.chosen.main
        found = self.chosen.catalog.of_lake().branches.find(name)
        if found is None and missing_ok:
            return None
        if found is None:
            raise InvalidRequest(
                f"{WAP_BRANCH} is {name!r}, and there is no such branch: it was never created, or "
                f"it was published or dropped. CREATE BRANCH {name}, set it to one that SHOW "
                f"BRANCHES lists, or RESET {WAP_BRANCH}"
            )
        if found.is_tag:
            raise InvalidRequest(
                f"{WAP_BRANCH} is {name!r}, which is a tag, and nothing is written to a tag: read "
                f"it by VERSION AS OF '{name}', and RESET {WAP_BRANCH} or set it to a branch"
            )
        for known in (self._by_setting, self.chosen):
            if known is not None and known.branch is not None and known.branch.id == found.id:
                return known
        return self.chosen.main.on_branch(found)


def _wap_branch(engine: Engine) -> str:
    """Return what Iceberg's setting names; an empty text if it isn't set, or there is no lake."""
    return engine.plane.setting(WAP_BRANCH, "") if engine.catalog.is_lake else ""


def _name_of(engine: Engine) -> str:
    """Return the name of an engine's branch, or `main`."""
    return MAIN_NAME if engine.branch is None else engine.branch.name


def _is_on(engine: Engine, name: str) -> bool:
    """Return whether an engine's branch has the name, in any letter case; `main` for main's."""
    return _name_of(engine).lower() == name.lower()


@dataclass(frozen=True, slots=True)
class BranchMark:
    """A branch as programs that aren't the session's name it, and know it from a later one of the
    same name.
    """

    id: str
    name: str

    def __str__(self) -> str:
        return f"branch {self.name!r}"


def mark_of(engine: Engine) -> BranchMark | None:
    """Return the mark of the engine's branch; None on main."""
    branch = engine.branch
    return None if branch is None else BranchMark(branch.id, branch.name)


def mark_of_table(engine: Engine, handle: Handle | None) -> BranchMark | None:
    """Return the mark of the branch whose versions a table's are: of the lake, or of a path table;
    None for main's.
    """
    if handle is not None and handle.branch is not None:
        return BranchMark(handle.branch.id, handle.branch.name)
    return mark_of(engine)


def engine_at(engine: Engine, mark: BranchMark) -> Engine:
    """Return the engine with a branch's names. Raises InvalidRequest if the branch has ended."""
    found = engine.catalog.of_lake().branches.find(mark.name)
    if found is None or found.id != mark.id:
        raise InvalidRequest(
            f"{mark} has ended: it was published, rebased or dropped. Make the stream anew, on a "
            "branch that SHOW BRANCHES lists or on main, with a checkpoint of its own"
        )
    return engine.main.on_branch(found)


def require_branch(engine: Engine, name: str) -> BranchEntry:
    """Return the branch of that name.

    Raises InvalidRequest if there is none, or it has expired, for a tag, and if the catalog isn't
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
    """Return the newest version that a table of the same name has on a branch, or had at a tag; of
    a path table the newest version of its own branch.

    Raises InvalidRequest if the branch or tag, or the table there, doesn't exist, if its time is
    over, and if it ends meanwhile.
    """
    if handle.entry is None:
        place, _ = split_place(handle.place)
        return engine.main.at_path(TablePath(branch_place(place, name))).log.latest()
    there = engine.main
    if name.lower() != MAIN_NAME:
        found = engine.catalog.of_lake().branches.find(name)
        if found is None:
            raise InvalidRequest(
                f"there is no branch or tag {name!r}: SHOW BRANCHES and SHOW TAGS list them"
            )
        found.require_kept(engine.system.now_ms())
        there = engine.main.on_branch(found)
    try:
        entry = there.catalog.find(handle.entry.database, handle.entry.name)
        if entry is None:
            raise InvalidRequest(f"{handle.name} doesn't exist on {name!r}")
        return there.at_entry(entry).log.latest()
    except (CorruptTable, InvalidRequest) as error:
        require_branch_open(there, error)
        raise


def require_wap_branch(engine: Engine) -> None:
    """Raise InvalidRequest if Iceberg's setting names another branch than the one in use, in a
    session that doesn't follow it: what is written would be seen where the program doesn't expect
    it.
    """
    wanted = _wap_branch(engine)
    if wanted and not _is_on(engine, wanted):
        raise InvalidRequest(
            f"{WAP_BRANCH} is {wanted!r}, and this session writes on {_name_of(engine)!r}, which "
            f"it was made for: RESET {WAP_BRANCH}, or set it to {_name_of(engine)!r}"
        )


def require_branch_kept(engine: Engine) -> None:
    """Raise InvalidRequest if the time of the engine's branch is over."""
    if engine.branch is not None:
        engine.branch.require_kept(engine.system.now_ms())


def require_branch_open(engine: Engine, cause: InvalidRequest | CorruptTable | None = None) -> None:
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
