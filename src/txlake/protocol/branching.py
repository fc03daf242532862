"""Branches of one table by its own log: the registry of them, and what closes a branch's log.

Source: Delta's branching RFC (protocol_rfcs/table-branching.md in delta-io/delta, pull request
7440), "The `delta.tableBranching` Metadata Domain". The RFC isn't accepted. Until then it calls the
feature `tableBranching-dev`, which is the only name that txlake knows: under the final name the
text may have become another.

What the RFC leaves open, and txlake adds under names of its own, which are kept where it rewrites
an entry:

- `txlakeReopened` of a branch in the registry: how often its log was opened again after it had been
  closed. A closing of the log counts only if it names this number.
- `txlakeRowIdBlock` of a branch: the row ids that its commits hand out begin with this block's
  (`commit.row_tracking`), so that main and the branches never hand out the same.
  `txlakeRowIdBlocks` of the registry is the last block that a branch has got.
- `txlakeCreated` of a branch: when it was created, milliseconds since the epoch.
- The writer feature CLOSED in a branch's log closes it: writers of every engine refuse a table with
  a feature that they don't know. The tag CLOSING of that commit has the number.
- The tags READS and LEVEL of a branch's commit have what its transaction read, and the isolation
  level at which that must stay true.
- A registry keeps the 20 branches that ended last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from txlake.errors import CorruptTable, InvalidRequest
from txlake.protocol.actions import DomainMetadata

FEATURE = "tableBranching-dev"
"""The writer feature of a table that may have branches."""

CLOSED = "txlakeClosedBranch"
"""The writer feature of a branch's log that is closed, which no engine writes."""

DOMAIN = "delta.tableBranching"
CLOSING = "txlake.closing"
READS = "txlake.reads"
LEVEL = "txlake.level"

_OPEN, _PUBLISHED, _DISCARDED = "open", "published", "discarded"
_REOPENED, _CREATED = "txlakeReopened", "txlakeCreated"
_BLOCK, _BLOCKS = "txlakeRowIdBlock", "txlakeRowIdBlocks"
_ENDED_KEPT = 20
_PLACE = re.compile(r"(.+?)/*@branch:(.*)", re.DOTALL)


def split_place(location: str) -> tuple[str, str | None]:
    """Return the place of a table, and the name of the branch that `/path@branch:name` gives; None
    without one.
    """
    match = _PLACE.fullmatch(location)
    return (location, None) if match is None else (match[1], match[2])


def branch_place(location: str, name: str) -> str:
    """Return the place of a table with a branch's name."""
    return f"{location}@branch:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBranch:
    """A branch in a table's registry.

    Attributes:
        id: the UUID that names its folder.
        base: the version of main that it forked from.
        created_version: the version of main that registered it.
        status: `open`, `published` or `discarded`.
        published_version: the version of main that has its changes; None unless it is published.
        reopened: how often its log was opened again after a closing.
        created_ms: when it was created; None if another engine did.
        row_id_block: the block of its row ids; None if another engine created it.
        others: fields that txlake doesn't know.
    """

    id: str
    name: str
    base: int
    created_version: int
    status: str = _OPEN
    published_version: int | None = None
    reopened: int = 0
    created_ms: int | None = None
    row_id_block: int | None = None
    others: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether it was neither published nor discarded."""
        return self.status == _OPEN

    def to_json(self) -> dict[str, object]:
        """Return the entry as the registry has it."""
        values: dict[str, object] = {
            **self.others,
            "branchId": self.id,
            "name": self.name,
            "baseVersion": self.base,
            "createdVersion": self.created_version,
            "status": self.status,
        }
        if self.published_version is not None:
            values["publishedVersion"] = self.published_version
        if self.reopened:
            values[_REOPENED] = self.reopened
        if self.created_ms is not None:
            values[_CREATED] = self.created_ms
        if self.row_id_block is not None:
            values[_BLOCK] = self.row_id_block
        return values


@dataclass(frozen=True, slots=True)
class Registry:
    """The branches of a table, in the order of their creation; methods return a changed registry.

    Attributes:
        branches: the open ones, and some of those that have ended.
        table: the table's name for messages.
        row_id_blocks: the last block of row ids that a branch has got.
        others: fields of the registry that txlake doesn't know.
    """

    branches: tuple[TableBranch, ...]
    table: str
    row_id_blocks: int = 0
    others: Mapping[str, object] = field(default_factory=dict)

    @property
    def open(self) -> tuple[TableBranch, ...]:
        """The open branches."""
        return tuple(one for one in self.branches if one.is_open)

    def find(self, name: str) -> TableBranch | None:
        """Return the open branch of a name, in any letter case; None without one."""
        return next((one for one in self.open if one.name.lower() == name.lower()), None)

    def require(self, name: str) -> TableBranch:
        """Return the open branch of a name. Raises InvalidRequest if there is none."""
        found = self.find(name)
        if found is not None:
            return found
        ended = [one for one in self.branches if one.name.lower() == name.lower()]
        if ended:
            raise self._ended(ended[-1])
        raise InvalidRequest(
            f"{self.table} has no branch {name!r}; SHOW BRANCHES FOR TABLE lists those that it has"
        )

    def require_unchanged(self, branch: TableBranch) -> None:
        """Raise InvalidRequest unless a branch is open as it was when it was read."""
        for one in self.branches:
            if one.id == branch.id:
                if not one.is_open:
                    raise self._ended(one)
                if one.reopened != branch.reopened:
                    raise InvalidRequest(
                        f"{self.table}: branch {one.name!r} was opened again meanwhile, by another "
                        "session that couldn't publish it; run the statement again"
                    )
                return
        raise InvalidRequest(f"{self.table}: branch {branch.name!r} has ended")

    def _ended(self, branch: TableBranch) -> InvalidRequest:
        how = "was dropped, or rebased"
        if branch.status == _PUBLISHED:
            how = f"was published as version {branch.published_version}"
        return InvalidRequest(f"{self.table}: branch {branch.name!r} has ended: it {how}")

    def with_created(self, branch: TableBranch) -> Registry:
        """Return the registry with a new branch and its block. Raises InvalidRequest if its name is
        taken.
        """
        if self.find(branch.name) is not None:
            raise InvalidRequest(
                f"{self.table} has a branch {branch.name!r} already; choose another name, or DROP "
                "BRANCH first"
            )
        made = self._with((*self.branches, branch))
        return replace(made, row_id_blocks=max(self.row_id_blocks, branch.row_id_block or 0))

    def with_published(self, branch: TableBranch, version: int) -> Registry:
        """Return the registry after a branch was published as a version of main."""
        return self._with_changed(
            replace(branch, status=_PUBLISHED, published_version=version), before=branch
        )

    def with_discarded(self, branch: TableBranch) -> Registry:
        """Return the registry after a branch was dropped."""
        return self._with_changed(replace(branch, status=_DISCARDED), before=branch)

    def with_reopened(self, branch: TableBranch) -> Registry:
        """Return the registry that voids the closings of a branch's log so far."""
        return self._with_changed(replace(branch, reopened=branch.reopened + 1), before=branch)

    def _with_changed(self, after: TableBranch, *, before: TableBranch) -> Registry:
        """Return the registry with a branch's new entry. Raises as `require_unchanged`."""
        self.require_unchanged(before)
        return self._with(tuple(after if one.id == after.id else one for one in self.branches))

    def _with(self, branches: tuple[TableBranch, ...]) -> Registry:
        """Return the registry with these branches, without the ones that ended long ago."""
        ended = [one.id for one in branches if not one.is_open]
        gone = frozenset(ended[:-_ENDED_KEPT])
        return replace(self, branches=tuple(one for one in branches if one.id not in gone))

    def action(self) -> DomainMetadata:
        """Return the action that records the registry."""
        values = {**self.others, "branches": [one.to_json() for one in self.branches]}
        if self.row_id_blocks:
            values[_BLOCKS] = self.row_id_blocks
        return DomainMetadata(
            domain=DOMAIN, configuration=json.dumps(values, separators=(",", ":")), removed=False
        )


def registry_of(domains: Mapping[str, DomainMetadata], *, table: str) -> Registry:
    """Return the registry in a table's metadata domains; an empty one without it.

    Raises CorruptTable if it can't be read.
    """
    domain = domains.get(DOMAIN)
    if domain is None or domain.removed:
        return Registry((), table)
    try:
        values = json.loads(domain.configuration)
        entries, blocks = values.pop("branches"), values.pop(_BLOCKS, 0)
        if not _is_count(blocks):
            raise ValueError(f"no number of blocks: {blocks!r:.80}")
        return Registry(tuple(map(_branch, entries)), table, blocks, values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTable(
            f"{table}: domain {DOMAIN}: expected the branches by Delta's branching RFC, found "
            f"{domain.configuration!r:.200}"
        ) from error


def _branch(values: dict[str, object]) -> TableBranch:
    """Return an entry of the registry. Raises ValueError, KeyError or TypeError for another
    shape.
    """
    rest = dict(values)
    texts = [rest.pop(key) for key in ("branchId", "name", "status")]
    numbers = [rest.pop(key) for key in ("baseVersion", "createdVersion")]
    reopened = rest.pop(_REOPENED, 0)
    optional = [rest.pop(key, None) for key in ("publishedVersion", _CREATED, _BLOCK)]
    known = [*numbers, reopened, *(one for one in optional if one is not None)]
    if not all(isinstance(one, str) for one in texts) or not all(map(_is_count, known)):
        raise ValueError(f"no branch: {values!r:.200}")
    branch_id, name, status = cast(list[str], texts)
    base, created_version = cast(list[int], numbers)
    published_version, created_ms, row_id_block = cast(list["int | None"], optional)
    return TableBranch(
        id=branch_id,
        name=name,
        base=base,
        created_version=created_version,
        status=status,
        published_version=published_version,
        reopened=cast(int, reopened),
        created_ms=created_ms,
        row_id_block=row_id_block,
        others=rest,
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
