"""Names that say whose a staged file is."""

from __future__ import annotations

from uuid import UUID

import pytest

from txlake.commit.staging import StagingSystem, tag_of, tags_in
from txlake.protocol.deletion_vectors import relative_file_name, relative_vector, vector_path
from txlake.system import System

OWNER = "7b1f7a2b-3c4d-4e7f-8f0e-36c20c6d8d5e"
FOREIGN = "0c6d8d5e-36c2-4f7f-9f0e-1f7a2b3c4d5e"


class Drawn(System):
    """Gives one id after the other."""

    def __init__(self, *ids: str) -> None:
        super().__init__()
        self._ids = list(ids)

    def new_id(self) -> str:
        return self._ids.pop(0)


def test_new_ids_are_uuids_with_the_owners_tag() -> None:
    staging = StagingSystem(System(), OWNER)
    made = {staging.new_id() for _ in range(1_000)}
    assert len(made) == 1_000
    for one in made:
        assert str(UUID(one)) == one
        assert (UUID(one).version, UUID(one).variant) == (8, "specified in RFC 4122")
        assert tags_in(f"part-00000-{one}-7.c000.snappy.parquet") == {tag_of(OWNER)}


def test_an_id_keeps_what_was_drawn() -> None:
    staging = StagingSystem(
        Drawn("00000000-0000-4000-8000-000000000000", "1" * 8 + FOREIGN[8:]), OWNER
    )
    first, second = staging.new_id(), staging.new_id()
    assert first.startswith(tag_of(OWNER))
    assert second.startswith(tag_of(OWNER))
    assert first != second


def test_transactions_have_tags_of_their_own() -> None:
    assert len({tag_of(str(number)) for number in range(1_000)}) == 1_000


@pytest.mark.parametrize(
    ("name", "is_tagged"),
    [
        ("part-00003-{}-12.c000.snappy.parquet", True),
        ("part-{}/part-00000-" + FOREIGN + "-c000.snappy.parquet", True),
        ("p=1/q=a b/part-00000-{}.parquet", True),
        ("{}-part-00000-" + FOREIGN + ".parquet", True),
        ("_change_data/cdc-00000-{}.parquet", True),
        ("p={}/part-00000-" + FOREIGN + ".parquet", False),
        ("part-00000-" + FOREIGN + ".parquet", False),
        ("part-00000.parquet", False),
    ],
)
def test_where_a_tag_is_looked_for(name: str, is_tagged: bool) -> None:
    made = StagingSystem(System(), OWNER).new_id()
    assert tags_in(name.format(made)) == ({tag_of(OWNER)} if is_tagged else set())


def test_a_deletion_vectors_file_has_the_tag() -> None:
    made = StagingSystem(System(), OWNER).new_id()
    vector = relative_vector(made, "", 1, 10, 1)
    assert vector_path(vector, "memory://t") == relative_file_name(made)
    assert tags_in(relative_file_name(made)) == {tag_of(OWNER)}


def test_all_tags_of_a_copy_count() -> None:
    first, second = (StagingSystem(System(), owner).new_id() for owner in "ab")
    assert tags_in(f"{first}-part-00000-{second}.parquet") == {tag_of("a"), tag_of("b")}


def test_the_clock_and_chance_are_the_systems() -> None:
    class Known(System):
        waited: float = 0

        def now_ms(self) -> int:
            return 7

        def random(self) -> float:
            return 0.25

        def wait_ms(self, duration_ms: float) -> None:
            self.waited = duration_ms

        def monotonic_ms(self) -> float:
            return 9.5

    known = Known()
    staging = StagingSystem(known, OWNER)
    staging.wait_ms(3)
    found = (staging.now_ms(), staging.random(), staging.monotonic_ms(), known.waited)
    assert found == (7, 0.25, 9.5, 3)
