"""Descriptions of trace lines, and of the world that a seed chooses, as text for a reader.

The lines are those that `process`, `clients`, `world` and `lake_faults` trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tests.simulation.case import PACKING, WorldConfig
from tests.simulation.feeds import FEED
from tests.simulation.process import Process
from tests.simulation.records import ReportedOutcome

_ATTEMPT = re.compile(r"(\w+\.\d+(?:\.\d+)?)(?: .*)?")
_LOG = re.compile(r"(?:.*/)?(\w+)/_delta_log/(\d{20})\.json")
_STORE = {
    "get": "read {}",
    "head": "look whether {} is there",
    "list": "list {}",
    "put": "write {}",
    "create": "create {}, unless it is there",
    "created": "have the reply to the creation of {}",
    "sync": "make {} durable",
    "put done": "wrote {}",
    "delete": "delete {}",
    "sweep": "sweep temporary files from {}",
}
_CATALOG = {
    "read": "begin to read the catalog",
    "note": "begin to note something in the catalog",
    "write": "begin a durable transaction of the catalog",
    "read done": "read the catalog",
    "note done": "noted it in the catalog",
    "write done": "the catalog's transaction is durable",
}
_TROUBLE = {
    "stands still": "stands still",
    "interrupted": "the statement is stopped, as by Ctrl-C",
    "interrupted, as soon as the catalog is done": "Ctrl-C, heard when the catalog is done",
    "dies": "the process dies",
}


class StepKind(Enum):
    """The kinds of steps, with the text that a page shows for each."""

    STATEMENT = "statement"
    STORE = "store"
    CATALOG = "catalog"
    OUTCOME = "outcome"
    RECOVERY = "recovery"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class LineDescription:
    """A line of the trace in words.

    Attributes:
        attempt: the transaction in the line, as client.program.attempt; empty if there is none.
        outcome: the outcome that the attempt's client was told; None for a line that reports none.
    """

    kind: StepKind
    words: str
    attempt: str = ""
    outcome: ReportedOutcome | None = None


def describe_line(what: tuple[object, ...]) -> LineDescription:
    """Return the description of a line's parts, which come without its time."""
    match what:
        case (Process(), ("can't recover" | "recovered") as how, found):
            return LineDescription(StepKind.RECOVERY, f"{how}: {found}")
        case (Process(), str(attempt), str(told), str(error)) if _is_outcome(told):
            words = f"{attempt}: {told}" + (f": {error}" if error else "")
            return LineDescription(
                StepKind.OUTCOME, words, attempt.partition(" ")[0], ReportedOutcome(told)
            )
        case (Process(), str(kind), "database") if kind in _CATALOG:
            return LineDescription(StepKind.CATALOG, _CATALOG[kind])
        case (Process(), str(kind), *why) if kind in _TROUBLE:
            because = f" ({' '.join(map(str, why))})" if why else ""
            return LineDescription(StepKind.TROUBLE, f"{_TROUBLE[kind]}{because}")
        case (Process(), "create", str(key), str(outcome)):
            return LineDescription(StepKind.STORE, f"{_named(key)}: {outcome}")
        case (Process(), str(kind), str(key)) if kind in _STORE:
            return LineDescription(StepKind.STORE, _STORE[kind].format(_named(key)))
        case ("clock", int(by_ms)):
            return LineDescription(
                StepKind.TROUBLE, f"the clock is set: {by_ms / 3_600_000:+.1f} h by now"
            )
        case ("power loss",):
            return LineDescription(StepKind.TROUBLE, "the power goes")
        case ("disaster", kind):
            return LineDescription(StepKind.TROUBLE, f"befalls the lake: {kind}")
        case ("outsider", name, *did):
            return LineDescription(
                StepKind.TROUBLE, f"another writer, in {name}'s log: {' '.join(map(str, did))}"
            )
        case (str(attempt), str(text)) if _ATTEMPT.fullmatch(attempt):
            return LineDescription(StepKind.STATEMENT, text, attempt)
    return LineDescription(StepKind.STORE, " ".join(map(str, what)))


def is_put_line(what: tuple[object, ...]) -> bool:
    """Return whether a line is a put or the reply to one; both lines are the same."""
    return len(what) == 3 and isinstance(what[0], Process) and what[1] == "put"


def _is_outcome(text: str) -> bool:
    """Return whether a text is the value of an outcome."""
    return any(text == one.value for one in ReportedOutcome)


def _named(key: str) -> str:
    """Return a key; for a commit, with its table and version."""
    found = _LOG.fullmatch(key)
    return key if found is None else f"version {int(found[2])} of {found[1]} ({key})"


def describe_world(config: WorldConfig) -> tuple[str, ...]:
    """Return sentences that describe the world that a seed chooses."""
    plan, settings = config.plan, config.settings
    place = "a disk" if config.is_disk else "a bucket"
    tables = f"{len(plan.initial)} table{'s' * (len(plan.initial) > 1)}"
    has = f"A lake with {tables}" if config.has_catalog else f"{tables.capitalize()} without a lake"
    programs = sum(map(len, plan.clients))
    processes = f"{len(config.sessions)} process{'es' * (len(config.sessions) > 1)}"
    sentences = [
        f"{has} ({', '.join(plan.initial)}), on {place}.",
        f"Programs: {plan.kind}, at {plan.level.value}.",
        f"{len(plan.clients)} clients with {programs} programs, in {processes}.",
    ]
    if config.has_catalog:
        clock = "that may be set" if config.is_server else "that only goes on"
        sentences.append(f"Leases of {settings.lease_ms / 1000:g} s, by a clock {clock}.")
    if config.is_open:
        sentences.append(
            "The tables are open, and every second client commits as another engine does."
        )
    if config.has_identity:
        sentences.append("Each table has an identity column.")
    if FEED in config.properties:
        sentences.append("Each table has a change data feed.")
    if PACKING in config.properties:
        sentences.append("Small files are packed after each commit.")
    if config.is_maintained:
        sentences.append("Each process does rounds of maintenance.")
    if config.is_recovered:
        sentences.append("At the end the catalog is lost, and rebuilt from the logs.")
    return tuple(sentences)
