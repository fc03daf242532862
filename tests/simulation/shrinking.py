"""Reduction of a failing case: fewer programs and fewer faults that fail in the same way.

Each step leaves something out and runs the case again; it is kept if the run still fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.case import Case, world_config
from tests.simulation.world import Failure, World

_RUNS_MAX = 300


def failure_of(case: Case) -> Failure | None:
    """Run a case; return its failure, or None."""
    try:
        World(case).run()
    except Failure as failure:
        return failure
    return None


def shrink(failure: Failure, run: Callable[[Case], Failure | None] = failure_of) -> Failure:
    """Return the smallest failure of the same kind that was found within 300 runs."""
    smallest, runs = failure, 0
    is_smaller = True
    while is_smaller and runs < _RUNS_MAX:
        is_smaller = False
        for smaller in _smaller_cases(smallest):
            runs += 1
            found = run(smaller)
            if found is not None and _is_same_failure(found, failure):
                smallest, is_smaller = found, True
                break
            if runs >= _RUNS_MAX:
                break
    return smallest


def _smaller_cases(failure: Failure) -> Iterator[Case]:
    """Yield the cases to try next, the largest reductions first."""
    case = failure.case
    happened = {one.kind for one in failure.injected if not one.is_requested} - case.without_kinds
    if happened:
        yield replace(case, without_kinds=case.without_kinds | happened)
    clients = world_config(case).plan.clients
    whole = world_config(Case(case.seed)).plan.clients
    for place, client in enumerate(clients):
        if client:
            every = {(place, number) for number in range(len(whole[place]))}
            yield replace(case, without_programs=case.without_programs | every)
    for place, programs in enumerate(whole):
        for number in reversed(range(len(programs))):
            if (place, number) not in case.without_programs:
                yield replace(case, without_programs=case.without_programs | {(place, number)})
    for kind in sorted(happened, key=lambda one: one.name):
        yield replace(case, without_kinds=case.without_kinds | {kind})
    for fault in sorted(case.faults, key=str):
        yield replace(case, faults=case.faults - {fault})
    for one in failure.injected:
        if not one.is_requested:
            yield replace(case, without_numbers=case.without_numbers | {one.number})


def _is_same_failure(found: Failure, other: Failure) -> bool:
    """Return whether two failures have the same type of error and the same words in the message."""
    return type(found.error) is type(other.error) and _message_words(found) == _message_words(other)


def _message_words(failure: Failure) -> str:
    """Return the message without names, numbers and rows, which change from case to case."""
    words = str(failure.error).split()
    return " ".join(word for word in words if word.isalpha())[:60]
