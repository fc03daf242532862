"""An engine that reads and writes tables as rows, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.rows.plane import RowPlane
from txlake.commands import COMMANDS
from txlake.commit.data_plane import DataPlane
from txlake.session.command import Commands
from txlake.session.engine import Engine


@dataclass(kw_only=True)
class RowEngine(Engine):
    """An engine on the row plane; `spark_settings`: the settings of the absent Spark session."""

    spark_settings: Mapping[str, str] = field(default_factory=dict)
    commands: Commands = field(default_factory=lambda: COMMANDS)
    plane: DataPlane = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plane = RowPlane(
            settings=self.settings, store_at=self.store_at, spark_settings=self.spark_settings
        )
