"""A lake whose sessions work on rows: `connect` without Spark."""

from __future__ import annotations

from itertools import count

from tests.simulation.rows.engine import RowEngine
from tests.simulation.rows.session import RowSession
from txlake.catalog import Catalog
from txlake.lake.lake import Lake, LakeSession
from txlake.session.membership.opening import open_lake
from txlake.settings import Settings
from txlake.storage import open_store
from txlake.system import System

_numbers = count()


class RowLake(Lake):
    """An empty lake in memory; the rows of its frames are tuples."""

    def __init__(self) -> None:
        system = System()
        engine = RowEngine(
            system=system,
            settings=Settings(),
            warehouse=open_store(f"memory://row-lake-{next(_numbers)}", {}),
            catalog=Catalog("sqlite://", system),
        )
        super().__init__(RowSession(engine))
        open_lake(self._session)

    def session(self) -> LakeSession:
        return LakeSession(RowSession(self._session.engine, level=self._session.level))
