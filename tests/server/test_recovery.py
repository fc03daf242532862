"""Open tables, those that clients made too, when a lake's catalog is lost; and when they go."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import txlake
from tests.server.client import OPEN, Client, file
from txlake.commit.membership import OPEN_PROPERTIES, TABLE_ID, membership_of
from txlake.errors import InvalidRequest, UnsupportedFeature
from txlake.session.membership.recovery import Recovered

pytestmark = pytest.mark.no_interop("its files' rows are only said to be there")


def test_a_lost_catalog_is_rebuilt_from_their_logs(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with txlake.connect(str(warehouse)) as lake, Client(lake) as client:
        lake.sql(f"CREATE TABLE ours (id INT) {OPEN}; INSERT INTO ours VALUES (1)")
        assert client.create("theirs").status_code == 200
        assert client.create("moved").status_code == 200
        lake.sql("ALTER TABLE moved RENAME TO elsewhere")
        for name in ("ours", "theirs", "elsewhere"):
            assert client.commit(name, client.stage(name, file("x"))).status_code == 200
        known = {name: client.uuid(name) for name in ("ours", "theirs", "elsewhere")}
        versions = {name: client.version(name) for name in known}
    for left in (warehouse / "_txlake").glob("catalog.db*"):
        left.unlink()
    with txlake.connect(str(warehouse)) as lake, Client(lake) as client:
        report = lake.recover()
        assert report.tables == ("default.elsewhere", "default.ours", "default.theirs")
        # What clients staged stays, and is published.
        assert [told for told in report.unknown if "never published" in told] == []
        assert {name: client.uuid(name) for name in known} == known
        assert {name: client.version(name) for name in known} == versions
        for name in known:
            assert client.commit(name, client.stage(name, file("y"))).status_code == 200


def test_a_table_that_a_client_made_is_detached_and_attached(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "warehouse")) as lake, Client(lake) as client:
        client.create("t")
        client.commit("t", client.stage("t", file("x")))
        place = lake.detach("t")
        now = txlake.Log(place).snapshot()
        assert "catalogManaged" not in str(now.protocol)
        assert not {TABLE_ID, "txlake.catalog"} & now.properties.keys()
        assert client.call("HEAD", client.url("t")).status_code == 404
        lake.attach(place, "again")
        own = membership_of(client.handle("again").log.latest())
        assert own is not None
        assert own.name == "default.again"


def test_a_dropped_table_comes_back_open(tmp_path: Path) -> None:
    with txlake.connect(str(tmp_path / "warehouse")) as lake, Client(lake) as client:
        client.create("t")
        table_id = client.uuid("t")
        client.call("DELETE", client.url("t"))
        lake.sql("UNDROP TABLE t")
        assert client.uuid("t") == table_id
        assert client.commit("t", client.stage("t", file("x"))).status_code == 200


def test_who_does_not_ask_the_catalog_is_refused(tmp_path: Path) -> None:
    """By txlake in another lake, and by another engine; it is found by its place in its own."""
    with txlake.connect(str(tmp_path / "warehouse")) as lake, Client(lake) as client:
        client.create("t")
        place = client.store("t").url
        with pytest.raises(DeltaError, match="catalog-managed table"):
            DeltaTable(place)
        with txlake.connect(str(tmp_path / "other")) as other:
            with pytest.raises(UnsupportedFeature, match=r"use its name there, default\.t"):
                other.sql(f"INSERT INTO delta.`{place}` VALUES (1)")
            with pytest.raises(InvalidRequest, match="belongs to another lake"):
                other.attach(place)
        with pytest.raises(InvalidRequest, match="a commit has to go through that catalog"):
            txlake.Log(place).start_transaction().commit([{"txn": {"appId": "a", "version": 1}}])
        lake.sql(f"INSERT INTO delta.`{place}` VALUES (1)")
        assert client.version("t") == 1


def replaced(client: Client, name: str) -> None:
    """Replace a table as Delta Spark does: with the properties that it is given, and its id."""
    now = client.handle(name).log.latest()
    configuration = {key: now.metadata.configuration[key] for key in (*OPEN_PROPERTIES, TABLE_ID)}
    metadata = msgspec.structs.replace(now.metadata, configuration=configuration)
    answer = client.commit(name, client.stage(name, metadata))
    assert answer.status_code == 200, answer.text


def test_a_table_that_its_maker_replaces_stays_the_lakes(tmp_path: Path) -> None:
    """Its properties say no more whose it is, and its place does."""
    warehouse = tmp_path / "a warehouse"
    with txlake.connect(str(warehouse)) as lake, Client(lake) as client:
        lake.sql("CREATE DATABASE shop")
        client.create("t")
        client.create("moved")
        client.create("shop.o")
        lake.sql("ALTER TABLE moved RENAME TO elsewhere")
        for name in ("t", "elsewhere", "shop.o"):
            replaced(client, name)
        lake.sql("INSERT INTO t VALUES (1)")
        known = {name: client.uuid(name) for name in ("t", "elsewhere", "shop.o")}
        place = client.store("t").url
        with (
            txlake.connect(str(tmp_path / "other")) as other,
            pytest.raises(UnsupportedFeature, match="its catalog makes its versions"),
        ):
            other.attach(place)
        lake.sql("DROP TABLE t; UNDROP TABLE t")
        client.create("lost")
        replaced(client, "lost")
        lake.sql("DROP TABLE lost PURGE")
        assert [one for one in warehouse.glob("lost*/**/*") if one.is_file()] == []
        assert lake.recover() == Recovered((), (), ())
    for left in (warehouse / "_txlake").glob("catalog.db*"):
        left.unlink()
    with txlake.connect(str(warehouse)) as lake, Client(lake) as client:
        assert lake.recover().tables == ("default.elsewhere", "default.t", "shop.o")
        assert {name: client.uuid(name) for name in known} == known
        for name in known:
            assert client.commit(name, client.stage(name, file("y"))).status_code == 200
