"""SQL makes of a table what `txlake.Log` may make of it, and mends what another engine left."""

from __future__ import annotations

import json

import pytest

from tests.commit.log_of import add, metadata
from tests.session.offline import Offline
from txlake.errors import InvalidRequest
from txlake.protocol.actions import Metadata, encode_actions
from txlake.protocol.file_names import commit_path

BOTH = "'delta.enableRowTracking' = 'true', 'delta.rowTrackingSuspended' = 'true'"
ILLEGAL = "DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION"


def left_by_another(lake: Offline, location: str, **configuration: str) -> Metadata:
    """A path table, as an engine that checks nothing leaves it."""
    lake.path_table(location, add("f", stats=json.dumps({"numRecords": 1})))
    odd = metadata({key.replace("__", "."): text for key, text in configuration.items()})
    lake.at(location).store.put(commit_path(1), encode_actions([odd]))
    return odd


def configuration(lake: Offline, location: str) -> dict[str, str]:
    return dict(lake.at(location).log.latest().metadata.configuration)


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE TABLE new (id BIGINT) TBLPROPERTIES ({BOTH})",
        f"CREATE OR REPLACE TABLE t (id BIGINT) TBLPROPERTIES ({BOTH})",
        f"ALTER TABLE t SET TBLPROPERTIES ({BOTH})",
        "ALTER TABLE tracked SET TBLPROPERTIES ('delta.RowTrackingSuspended' = 'True')",
        f"CREATE TABLE new LIKE t TBLPROPERTIES ({BOTH})",
        f"CREATE TABLE new SHALLOW CLONE t TBLPROPERTIES ({BOTH})",
    ],
)
def test_row_ids_are_not_suspended_while_they_are_relied_upon(statement: str) -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id BIGINT)")
    lake.run("CREATE TABLE tracked (id BIGINT) TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    with pytest.raises(InvalidRequest, match=ILLEGAL):
        lake.run(statement)
    assert len(lake.tables()) == 2


def test_the_mapping_of_a_clone_is_that_of_its_source() -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id BIGINT) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    with pytest.raises(InvalidRequest, match="a clone has its source's column mapping mode"):
        lake.run(
            "CREATE TABLE c SHALLOW CLONE t TBLPROPERTIES ('DELTA.columnmapping.MODE' = 'none')"
        )


def test_a_clone_does_not_map_what_its_source_does_not() -> None:
    lake = Offline()
    place = f"{lake.place}-p"
    left_by_another(lake, place, **{"delta.columnMapping.mode": "name"})  # by an old protocol
    lake.run(f"CREATE TABLE c SHALLOW CLONE delta.`{place}`")
    found = lake.at(lake.tables()["default.c"]).log.latest()
    assert [item.physical_name for item in found.schema] == ["id", "p"]
    assert found.column_mapping_mode == "none"


def test_mapping_ends_only_with_the_table() -> None:
    lake = Offline()
    for mode in ("name", "id"):
        lake.run(
            f"CREATE TABLE {mode} (id BIGINT) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
        )
        for change in (
            "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')",
            "UNSET TBLPROPERTIES ('delta.columnMapping.mode')",
        ):
            with pytest.raises(InvalidRequest, match=f"from '{mode}' to 'none'"):
                lake.run(f"ALTER TABLE {mode} {change}")
        lake.run(f"CREATE OR REPLACE TABLE {mode} (id BIGINT)")


def test_a_restored_table_has_the_mapping_that_its_files_have() -> None:
    lake = Offline()
    lake.run("CREATE TABLE t (id BIGINT, name STRING)")
    for change in (
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "RENAME COLUMN name TO label",
    ):
        lake.run(f"ALTER TABLE t {change}")

    def now() -> tuple[str, list[str]]:
        found = lake.at(lake.tables()["default.t"]).log.latest()
        return found.column_mapping_mode, [item.name for item in found.schema]

    lake.run("RESTORE TABLE t TO VERSION AS OF 0")
    assert now() == ("none", ["id", "name"])
    lake.run("RESTORE TABLE t TO VERSION AS OF 2")
    assert now() == ("name", ["id", "label"])


@pytest.mark.parametrize(
    ("key", "odd", "mended"),
    [
        ("delta.logRetentionDuration", "interval 1 month", "30 days"),
        ("delta.checkpointPolicy", "v9", "classic"),
        ("delta.appendOnly", "perhaps", "false"),
        ("delta.isolationLevel", "Chaos", "Serializable"),
        ("txlake.conflictGranularity", "page", "row"),
    ],
)
def test_an_odd_property_is_mended_by_sql(key: str, odd: str, mended: str) -> None:
    lake = Offline()
    for number, (change, after) in enumerate(
        (
            (f"SET TBLPROPERTIES ('{key}' = '{mended}')", {key: mended}),
            (f"UNSET TBLPROPERTIES ('{key}')", {}),
        )
    ):
        place = f"{lake.place}-p{number}"
        left_by_another(lake, place, **{key: odd})
        assert configuration(lake, place) == {key: odd}
        lake.run(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('mine' = 'x')")
        with pytest.raises(InvalidRequest, match=key):
            lake.run(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('{key}' = 'odd too')")
        lake.run(f"ALTER TABLE delta.`{place}` {change}")
        assert configuration(lake, place) == {"mine": "x", **after}


def test_a_mapping_that_the_protocol_does_not_let_count_does_not_come_into_force_by_the_way() -> (
    None
):
    lake = Offline()
    place = f"{lake.place}-p"
    for mode, message in (("id", "from 'none' to 'id'"), ("index", "isn't understood")):
        left_by_another(lake, f"{place}-{mode}", **{"delta.columnMapping.mode": mode})
        change = f"ALTER TABLE delta.`{place}-{mode}`"
        with pytest.raises(InvalidRequest, match=message):
            lake.run(f"{change} SET TBLPROPERTIES ('mine' = 'x')")
        lake.run(f"{change} UNSET TBLPROPERTIES ('delta.columnMapping.mode')")
        lake.run(f"{change} SET TBLPROPERTIES ('mine' = 'x')")


def test_row_ids_that_were_suspended_by_another_are_given_when_it_ends() -> None:
    lake = Offline()
    place = f"{lake.place}-p"
    left_by_another(lake, place, delta__rowTrackingSuspended="true")
    lake.run(
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.feature.rowTracking' = 'supported')"
    )
    with pytest.raises(InvalidRequest, match=ILLEGAL):
        lake.run(
            f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
        )
    lake.run(
        f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES "
        "('delta.enableRowTracking' = 'true', 'delta.rowTrackingSuspended' = 'false')"
    )
    (file,) = lake.at(place).log.latest().files.adds()
    assert file.base_row_id == 0
