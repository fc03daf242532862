"""The real clock, identifiers, chance and waiting."""

from __future__ import annotations

import random
import re
import time
from datetime import UTC, datetime

import pytest

from txlake import ports
from txlake.system import System


@pytest.fixture
def system() -> System:
    return System()


def test_is_the_port(system: System) -> None:
    port: ports.System = system
    assert port is system


def test_now_is_in_milliseconds_since_the_epoch(system: System) -> None:
    before = datetime.now(UTC).timestamp() * 1000
    now = system.now_ms()
    after = datetime.now(UTC).timestamp() * 1000
    assert int(before) <= now <= after + 1


def test_identifiers_are_random_uuids(system: System) -> None:
    found = {system.new_id() for _ in range(100)}
    assert len(found) == 100
    shape = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(shape.fullmatch(each) for each in found)


def test_chance_is_a_fraction_that_no_seed_of_the_user_fixes(system: System) -> None:
    random.seed(7)
    first = [system.random() for _ in range(20)]
    random.seed(7)
    second = [system.random() for _ in range(20)]
    assert first != second
    assert all(0 <= each < 1 for each in first + second)


def test_waits_in_milliseconds(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    system.wait_ms(250)
    system.wait_ms(0)
    system.wait_ms(-3)
    assert waited == [0.25]


def test_monotonic_clock_is_in_milliseconds(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_500_000)
    assert system.monotonic_ms() == 1.5
