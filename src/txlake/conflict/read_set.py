"""The read set of several commits of one table, joined so that it can be checked as one.

Owns which reads say nothing that another one doesn't, and how many are kept apart. A joined read
set conflicts with a winner wherever one of the sets that it was made of does. Source:
docs/how-a-commit-works.md, the table of a footprint's parts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from txlake.conflict.footprint import Footprint, Read, ReadKind
from txlake.log.predicate_codec import literal_to_json, predicate_to_json
from txlake.log.predicates import (
    And,
    ColumnPath,
    Comparison,
    In,
    Operator,
    Predicate,
    conjuncts,
    to_text,
)
from txlake.log.skipping import LIST_VALUES_MAX

READS_MAX = 256
"""Reads that are kept apart: a check evaluates each one on the files of all winners, which takes
about a millisecond, so that these take as long as a few requests to a store."""

READ_BYTES_MAX = 64 * 1024
"""Bytes of the predicates that are kept: no more than the actions of a commit of a hundred files,
beside which they are stored."""

_Flags: TypeAlias = tuple[ReadKind, bool, bool, bool]
_Point: TypeAlias = tuple[_Flags, ColumnPath, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """What commits of one table read of it: the parts of a `Footprint` of the same meaning.

    Attributes:
        reads: the reads by predicate.
        read_files: paths, as in the log, of files that were read without a predicate.
        read_app_ids: application ids that the commits depend on.
        read_domains: metadata domains that they depend on.
        is_complete: False if part of a record couldn't be decoded. The reads are then those of the
            whole table, of all kinds; which application ids and domains were read isn't known, so
            that any winner which sets one conflicts.
    """

    reads: tuple[Read, ...] = ()
    read_files: frozenset[str] = frozenset()
    read_app_ids: frozenset[str] = frozenset()
    read_domains: frozenset[str] = frozenset()
    is_complete: bool = True

    @classmethod
    def of(cls, footprint: Footprint) -> ReadSet:
        """Return what the transaction of a footprint read."""
        return cls(
            reads=footprint.reads,
            read_files=footprint.read_files,
            read_app_ids=footprint.read_app_ids,
            read_domains=footprint.read_domains,
        )

    @classmethod
    def unknown(cls) -> ReadSet:
        """Return the read set of commits of which nothing is known."""
        return cls(reads=tuple(Read(kind=kind) for kind in ReadKind), is_complete=False)


def join_reads(many: Iterable[ReadSet]) -> ReadSet:
    """Return one read set for all of these; it conflicts with a winner wherever one of them does.

    Reads that another read of their kind covers are left out, and comparisons of one column with
    single values become lists of values. Of a kind with too many reads for READS_MAX and
    READ_BYTES_MAX one read of the whole table remains.
    """
    sets = tuple(many)
    entries = _distinct(read for one in sets for read in one.reads)
    entries = _without_covered(_with_lists(_without_covered(entries)))
    files = frozenset[str]().union(*(one.read_files for one in sets))
    if sum(map(len, files)) > READ_BYTES_MAX:
        entries, files = (
            [_Entry(Read(text=_count_text(len(files), "files"))), *entries],
            frozenset(),
        )
        entries = _without_covered(entries)
    return ReadSet(
        reads=tuple(entry.read for entry in _within_limits(entries)),
        read_files=files,
        read_app_ids=frozenset[str]().union(*(one.read_app_ids for one in sets)),
        read_domains=frozenset[str]().union(*(one.read_domains for one in sets)),
        is_complete=all(one.is_complete for one in sets),
    )


class _Entry:
    """A read with the JSON texts of its conjuncts, by which it is compared.

    A predicate that is nested too deeply for JSON becomes the whole table.
    """

    def __init__(self, read: Read) -> None:
        self.read = read
        self.parts: tuple[Predicate, ...] = ()
        try:
            self.parts = () if read.predicate is None else conjuncts(read.predicate)
            self.texts = frozenset(map(_text, self.parts))
        except RecursionError:
            self.parts, self.texts = (), frozenset()
            self.read = replace(read, predicate=None, deletes_all=False)

    @property
    def flags(self) -> _Flags:
        """What two reads have to share to be merged."""
        read = self.read
        return (read.kind, read.files, read.deletes_all, read.is_assumed)

    @property
    def size(self) -> int:
        """The approximate bytes of its record."""
        return sum(map(len, self.texts)) + len(self.read.text or "")

    def covers(self, other: _Entry) -> bool:
        """Return whether a winner that conflicts with the other read conflicts with this one.

        It does if this one has no further conjunct, and none of the exceptions that the other
        doesn't have.
        """
        ours, theirs = self.read, other.read
        return (
            ours.kind is theirs.kind
            and self.texts <= other.texts
            and ours.files >= theirs.files
            and ours.deletes_all <= theirs.deletes_all
            and ours.is_assumed <= theirs.is_assumed
        )


def _text(predicate: Predicate) -> str:
    return json.dumps(predicate_to_json(predicate), separators=(",", ":"))


def _distinct(reads: Iterable[Read]) -> list[_Entry]:
    """Return the reads without repetitions; a repeated one without its condition for probes."""
    found: dict[object, _Entry] = {}
    for entry in map(_Entry, reads):
        known = found.setdefault((entry.flags, entry.texts), entry)
        if known.read.condition is not entry.read.condition:
            known.read = replace(known.read, condition=None)
    return list(found.values())


def _without_covered(entries: Sequence[_Entry]) -> list[_Entry]:
    """Return the reads that no other one covers, in their order."""
    kept: dict[str, list[_Entry]] = {}
    covered: set[int] = set()
    # A read is covered by reads with fewer conjuncts, all of which are its own.
    for entry in sorted(entries, key=lambda one: (len(one.texts), sum(one.flags[2:]))):
        candidates = (one for text in ("", *entry.texts) for one in kept.get(text, ()))
        if any(one.covers(entry) for one in candidates):
            covered.add(id(entry))
        else:
            kept.setdefault(min(entry.texts, default=""), []).append(entry)
    return [entry for entry in entries if id(entry) not in covered]


def _with_lists(entries: Sequence[_Entry]) -> list[_Entry]:
    """Return the reads, those that differ in the values of one column alone as lists of values.

    A list has as many values as file skipping compares one by one, so that nothing is lost.
    """
    frequency = Counter(key for entry in entries for key in _points(entry))
    groups: dict[object, list[tuple[_Entry, Comparison | In | None]]] = {}
    for entry in entries:
        points = _points(entry)
        key = max(points, key=lambda one: frequency[one], default=None)
        group = id(entry) if key is None else key
        groups.setdefault(group, []).append((entry, None if key is None else points[key]))
    return [one for group in groups.values() for one in _merged(group)]


def _points(entry: _Entry) -> dict[_Point, Comparison | In]:
    """Return the conjuncts that compare a column with a few values, by what is left without them:
    flags, column, and the texts of the other conjuncts.
    """
    return {
        (entry.flags, part.column, entry.texts - {_text(part)}): part
        for part in entry.parts
        if (isinstance(part, Comparison) and part.op is Operator.EQUAL and part.value is not None)
        or (isinstance(part, In) and len(part.values) <= LIST_VALUES_MAX)
    }


def _merged(group: Sequence[tuple[_Entry, Comparison | In | None]]) -> Iterator[_Entry]:
    """Yield a group's reads as few reads with lists of values; a single one as it is."""
    first, point = group[0]
    if len(group) == 1:
        yield first
        return
    assert point is not None
    others = tuple(part for part in first.parts if part is not point)
    values = {
        json.dumps(literal_to_json(value)): value
        for _, one in group
        if one is not None
        for value in (one.values if isinstance(one, In) else (one.value,))
    }
    every = tuple(values.values())
    for start in range(0, len(every), LIST_VALUES_MAX):
        few = In(point.column, every[start : start + LIST_VALUES_MAX])
        predicate = And((*others, few)) if others else few
        yield _Entry(
            replace(first.read, predicate=predicate, text=to_text(predicate), condition=None)
        )


def _within_limits(entries: list[_Entry]) -> list[_Entry]:
    """Return the reads; those of as many kinds as necessary, the largest first, as one read of the
    whole table each.
    """
    kinds = dict.fromkeys(entry.read.kind for entry in entries)
    for kind in sorted(kinds, key=lambda one: _load(entries, one), reverse=True):
        if _load(entries) <= 1:
            break
        own = [entry for entry in entries if entry.read.kind is kind]
        whole = Read(
            text=_count_text(len(own), "conditions"),
            kind=kind,
            files=any(entry.read.files for entry in own),
        )
        others = [entry for entry in entries if entry.read.kind is not kind]
        entries = [*others, _Entry(whole)]
    return entries


def _load(entries: Iterable[_Entry], kind: ReadKind | None = None) -> float:
    """Return the part of the limits that the reads take, those of one kind alone if it is given."""
    sizes = [entry.size for entry in entries if kind in (None, entry.read.kind)]
    return max(len(sizes) / READS_MAX, sum(sizes) / READ_BYTES_MAX)


def _count_text(count: int, what: str) -> str:
    return f"{count:,} {what}, too many to keep apart"
