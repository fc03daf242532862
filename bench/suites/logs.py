"""The works on logs: no data file is read, and no Spark is started."""

from __future__ import annotations

import resource
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

import txlake
from bench.sources.logs import LogData, log_of_commits, log_with_checkpoint, one_more
from bench.stage import Stage, timed


class OpenLog(ABC):
    """A log that an engine has opened, its live files in memory."""

    @abstractmethod
    def files(self) -> int:
        """The number of rows of the Arrow table of all live files."""

    @abstractmethod
    def files_of_day(self, day: str) -> int:
        """The number of files of one partition, which are listed."""

    @abstractmethod
    def refresh(self) -> int:
        """Take up what was committed since; gives the version."""


class TxlakeLog(OpenLog):
    """txlake.Log."""

    def __init__(self, folder: Path) -> None:
        self.log = txlake.Log(folder)
        self.snapshot = self.log.snapshot()

    def files(self) -> int:
        return len(self.snapshot.files())

    def files_of_day(self, day: str) -> int:
        return len(self.snapshot.files(where=f"day = '{day}'")["path"].to_pylist())

    def refresh(self) -> int:
        self.snapshot = self.log.snapshot()
        return self.snapshot.version


class DeltaRsLog(OpenLog):
    """deltalake.DeltaTable."""

    def __init__(self, folder: Path) -> None:
        self.table = DeltaTable(str(folder))

    def files(self) -> int:
        return len(pa.table(self.table.get_add_actions()))

    def files_of_day(self, day: str) -> int:
        return len(self.table.file_uris(file_pruning_predicate=[("day", "=", day)]))

    def refresh(self) -> int:
        self.table.update_incremental()
        return self.table.version()


_OPEN: dict[str, Callable[[Path], OpenLog]] = {"txlake": TxlakeLog, "delta-rs": DeltaRsLog}


def open_commits(stage: Stage, number: int) -> float:
    """From JSON commits alone."""
    return _opened(stage, log_of_commits(stage.data, stage.sizes.log_files))


def open_checkpoint(stage: Stage, number: int) -> float:
    """From a checkpoint."""
    return _opened(stage, log_with_checkpoint(stage.data, stage.sizes.log_files))


def refresh(stage: Stage, number: int) -> float:
    """One commit of one file more, taken up by a log that is open. Milliseconds."""

    def copied() -> tuple[OpenLog, Path, list[int]]:
        source = log_with_checkpoint(stage.data, stage.sizes.log_files)
        folder = stage.scratch / "refreshed"
        shutil.copytree(source.folder, folder)
        opened = _OPEN[stage.engine_name](folder)
        stage.expect(opened.files(), source.files, folder)
        return opened, folder, [source.version]

    opened, folder, versions = stage.keep("refreshed", copied)
    version = versions[-1] + 1
    one_more(folder / "_delta_log", version)
    versions.append(version)
    seconds, found = timed(opened.refresh)
    stage.expect(found, version, folder)
    expected = stage.sizes.log_files + len(versions) - 1
    stage.expect(opened.files(), expected, folder)
    return seconds * 1000


def open_large(stage: Stage, number: int) -> float:
    """From a large checkpoint."""
    return _opened(stage, log_with_checkpoint(stage.data, stage.sizes.large_log_files))


def plan_partition(stage: Stage, number: int) -> float:
    """The list of one partition's files, of the large log that is open. Milliseconds."""
    data = log_with_checkpoint(stage.data, stage.sizes.large_log_files)
    opened = stage.kept["opened"]
    assert isinstance(opened, OpenLog)
    seconds, found = timed(lambda: opened.files_of_day(data.day))
    stage.expect(found, data.files_of_day, data.folder)
    return seconds * 1000


def peak_memory(stage: Stage, number: int) -> float:
    """The most that this process has held at once, in MiB, the interpreter and libraries too."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (peak,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def _opened(stage: Stage, data: LogData) -> float:
    stage.kept.pop("opened", None)  # one at a time, so that the peak is one log's

    def open_and_list() -> tuple[OpenLog, int]:
        opened = _OPEN[stage.engine_name](data.folder)
        return opened, opened.files()

    seconds, (opened, files) = timed(open_and_list)
    stage.expect(files, data.files, data.folder)
    stage.kept["opened"] = opened
    return seconds
