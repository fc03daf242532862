"""The properties `txlake.maintenance.*`: which come first, and what odd ones do."""

from __future__ import annotations

import dataclasses

import pytest

from txlake.errors import InvalidRequest
from txlake.maintenance.policy import Policy, Work, policy_of
from txlake.protocol.properties import MAINTENANCE_PREFIX, validate_set

SWITCHES = {
    "checkpoint": {Work.CHECKPOINT},
    "cluster": {Work.CLUSTER},
    "iceberg": {Work.ICEBERG},
    "logCleanup": {Work.LOG_CLEANUP},
    "optimize": {Work.OPTIMIZE},
    "purge": {Work.PURGE},
    "statistics": {Work.STATISTICS},
    "vacuum": {Work.VACUUM, Work.FULL_VACUUM},
}
THRESHOLDS = {
    "deletedRowsShare": ("0.5", {"deleted_share_min": 0.5}),
    "fullVacuumInterval": ("interval 1 day", {"full_vacuum_interval_ms": 86_400_000}),
    "minExpiredFiles": ("7", {"expired_files_min": 7}),
    "minSmallFiles": ("9", {"small_files_min": 9}),
    "unclusteredShare": ("1", {"unclustered_share_min": 1.0}),
}


def named(**properties: str) -> dict[str, str]:
    return {MAINTENANCE_PREFIX + key: text for key, text in properties.items()}


def test_by_default_all_is_on() -> None:
    assert policy_of({}, {}) == Policy()
    assert all(map(Policy().allows, Work))


@pytest.mark.parametrize(("name", "works"), SWITCHES.items())
def test_each_switch(name: str, works: set[Work]) -> None:
    policy = policy_of({}, named(**{name: "false"}))
    assert {work for work in Work if not policy.allows(work)} == works


def test_all_of_it_can_be_off() -> None:
    policy = policy_of({}, named(enabled="FALSE"))
    assert not any(map(policy.allows, Work))


@pytest.mark.parametrize(("name", "given"), THRESHOLDS.items())
def test_each_threshold(name: str, given: tuple[str, dict[str, object]]) -> None:
    text, expected = given
    assert policy_of({}, named(**{name: text})) == dataclasses.replace(Policy(), **expected)  # type: ignore[arg-type]


def test_a_tables_property_comes_before_its_databases() -> None:
    policy = policy_of(
        named(enabled="false", minSmallFiles="9", vacuum="false"),
        named(enabled="true", minSmallFiles="8"),
    )
    assert policy.enabled
    assert policy.small_files_min == 8
    assert not policy.allows(Work.VACUUM)


@pytest.mark.parametrize("name", ["enabled", *SWITCHES])
def test_a_switch_that_cannot_be_read_is_off(name: str) -> None:
    assert policy_of({}, named(**{name: "perhaps"})) == policy_of({}, named(**{name: "false"}))


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_threshold_that_cannot_be_read_has_its_default(name: str) -> None:
    assert policy_of({}, named(**{name: "many"})) == Policy()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enabled", "perhaps"),
        ("deletedRowsShare", "0"),
        ("deletedRowsShare", "1.1"),
        ("unclusteredShare", "-1"),
        ("unclusteredShare", "1e-3"),
        ("minSmallFiles", "1"),
        ("minExpiredFiles", "0"),
        ("fullVacuumInterval", "1 month"),
        ("vacume", "true"),
    ],
)
def test_what_cannot_be_set(key: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=key):
        validate_set(MAINTENANCE_PREFIX + key, value)
