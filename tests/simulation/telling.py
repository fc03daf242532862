"""What a line of the trace says, in words, and what a seed says of its world.

Owns the words. The lines are those that `process`, `clients`, `world` and `disasters` note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from tests.simulation.case import Shape
from tests.simulation.feeds import FEED
from tests.simulation.history import Told
from tests.simulation.process import Process

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


class Doing(Enum):
    """What kind of thing a step is, and the sign that it is drawn with."""

    STATEMENT = "statement"
    STORE = "store"
    CATALOG = "catalog"
    TOLD = "outcome"
    RECOVERY = "recovery"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the trace.

    Attributes:
        attempt: the transaction that it names: client, program, attempt.
        told: the outcome that the attempt's client was told.
    """

    doing: Doing
    words: str
    attempt: str = ""
    told: Told | None = None


def told_of(what: tuple[object, ...]) -> Line:
    """What a line says, its time aside."""
    match what:
        case (Process(), ("can't recover" | "recovered") as how, found):
            return Line(Doing.RECOVERY, f"{how}: {found}")
        case (Process(), str(attempt), str(told), str(error)) if _is_told(told):
            words = f"{attempt}: {told}" + (f": {error}" if error else "")
            return Line(Doing.TOLD, words, attempt.partition(" ")[0], Told(told))
        case (Process(), str(kind), "database") if kind in _CATALOG:
            return Line(Doing.CATALOG, _CATALOG[kind])
        case (Process(), str(kind), *why) if kind in _TROUBLE:
            because = f" ({' '.join(map(str, why))})" if why else ""
            return Line(Doing.TROUBLE, f"{_TROUBLE[kind]}{because}")
        case (Process(), "create", str(key), str(outcome)):
            return Line(Doing.STORE, f"{_named(key)}: {outcome}")
        case (Process(), str(kind), str(key)) if kind in _STORE:
            return Line(Doing.STORE, _STORE[kind].format(_named(key)))
        case ("clock", int(by_ms)):
            return Line(Doing.TROUBLE, f"the clock is set: {by_ms / 3_600_000:+.1f} h by now")
        case ("power loss",):
            return Line(Doing.TROUBLE, "the power goes")
        case ("disaster", kind):
            return Line(Doing.TROUBLE, f"befalls the lake: {kind}")
        case ("outsider", name, *did):
            return Line(
                Doing.TROUBLE, f"another writer, in {name}'s log: {' '.join(map(str, did))}"
            )
        case (str(attempt), str(text)) if _ATTEMPT.fullmatch(attempt):
            return Line(Doing.STATEMENT, text, attempt)
    return Line(Doing.STORE, " ".join(map(str, what)))


def is_put(what: tuple[object, ...]) -> bool:
    """Whether it is an object's put, or the reply to it: both lines are the same."""
    return len(what) == 3 and isinstance(what[0], Process) and what[1] == "put"


def _is_told(text: str) -> bool:
    return any(text == one.value for one in Told)


def _named(key: str) -> str:
    """A key; of a commit, what it is."""
    found = _LOG.fullmatch(key)
    return key if found is None else f"version {int(found[2])} of {found[1]} ({key})"


def world_of(shape: Shape) -> tuple[str, ...]:
    """What a seed says of its world, a sentence each."""
    plan, settings = shape.plan, shape.settings
    place = "a disk" if shape.is_disk else "a bucket"
    tables = f"{len(plan.initial)} table{'s' * (len(plan.initial) > 1)}"
    has = f"A lake with {tables}" if shape.has_catalog else f"{tables.capitalize()} without a lake"
    programs = sum(map(len, plan.clients))
    processes = f"{len(shape.sessions)} process{'es' * (len(shape.sessions) > 1)}"
    said = [
        f"{has} ({', '.join(plan.initial)}), on {place}.",
        f"Programs: {plan.kind}, at {plan.level.value}.",
        f"{len(plan.clients)} clients with {programs} programs, in {processes}.",
    ]
    if shape.has_catalog:
        clock = "that may be set" if shape.is_server else "that only goes on"
        said.append(f"Leases of {settings.lease_ms / 1000:g} s, by a clock {clock}.")
    if shape.is_open:
        said.append("The tables are open, and every second client commits as another engine does.")
    if shape.has_identity:
        said.append("Each table has an identity column.")
    if FEED in shape.properties:
        said.append("Each table has a change data feed.")
    if shape.is_recovered:
        said.append("At the end the catalog is lost, and rebuilt from the logs.")
    return tuple(said)
