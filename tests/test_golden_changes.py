"""The change data feeds of golden tables: Spark reads the changes that the manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.golden import golden_tables, render_rows
from txlake.commit.table_log import TableLog
from txlake.log.snapshot import Snapshot
from txlake.protocol.reach import ANYWHERE
from txlake.protocol.types import type_to_json
from txlake.session.change_feed import feed_frame
from txlake.settings import Settings
from txlake.spark.manifest import Manifests
from txlake.spark.plane import SparkTable
from txlake.sql.statements import ChangeRange, TimeTravel
from txlake.storage import open_store
from txlake.system import System

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Described = Mapping[str, Any]

_SYSTEM = System()
_MANIFESTS = Manifests(_SYSTEM)
# The manifest has no form for times of commits.
_SHOWN = {"_change_type": "string", "_commit_version": "long"}


def _feeds() -> list[Any]:
    return [
        pytest.param(table, id=str(table["id"]), marks=pytest.mark.xdist_group(str(table["id"])))
        for table in golden_tables()
        if "cdf" in table
    ]


@pytest.mark.broad(keep=4)
@pytest.mark.parametrize("table", _feeds())
def test_changes(spark: SparkSession, golden: Path, table: Described) -> None:
    store = open_store(str(golden / str(table["path"])))
    log = TableLog(store, _SYSTEM, Settings(), name=str(table["id"]))

    def work_on(snapshot: Snapshot) -> SparkTable:
        return SparkTable(
            start=lambda: spark,
            manifests=_MANIFESTS,
            system=_SYSTEM,
            settings=Settings(),
            snapshot=snapshot,
            store=store,
            allowed=lambda: (ANYWHERE,),
        )

    feed = table["cdf"]
    first, last = (int(feed[f"{end}_version"]) for end in ("starting", "ending"))
    asked = ChangeRange(TimeTravel(version=first), TimeTravel(version=last))
    frame = feed_frame(
        log,
        asked,
        log.latest().version,
        moment_ms=lambda _: 0,
        work_on=work_on,
        may_be_later=False,
    )
    schema = cast(dict[str, Any], type_to_json(log.snapshot(version=last).schema))
    schema["fields"] += [{"name": name, "type": kind} for name, kind in _SHOWN.items()]
    rows = render_rows().rows_of(frame.toArrow(), schema)
    found = (len(rows), render_rows().digest(rows, schema)[0])
    assert found == (feed["expect"]["num_rows"], feed["expect"]["content_sha256"])
