"""The commits of a table, replayed by themselves, and its version checksum files against them.

Source: PROTOCOL.md, "Version Checksum File".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def check_checksums(folder: Path) -> set[int]:
    """The versions that have a checksum file; every statement in every file must be true.

    The log must have all of its commits. Raises AssertionError.
    """
    found = set()
    for version, truth in enumerate(_states(folder)):
        file = folder / "_delta_log" / f"{version:020}.crc"
        if not file.exists():
            continue
        found.add(version)
        said = json.loads(file.read_text())
        for name, value in truth.items():
            if name in said:
                assert _plain(said[name]) == value, (version, name, said[name], value)
        assert {"tableSizeBytes", "numFiles", "metadata", "protocol"} <= set(said)
    return found


def commits(folder: Path) -> list[Path]:
    """The commits' files, version 0 first."""
    return sorted((folder / "_delta_log").glob("[0-9]" * 20 + ".json"))


def _states(folder: Path) -> Iterator[Json]:
    files: dict[str, Json] = {}
    last: dict[str, Json] = {}
    domains: dict[str, Json] = {}
    for commit in commits(folder):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        for action in actions:
            ((kind, content),) = action.items()
            match kind:
                case "add":
                    files[content["path"]] = content
                case "metaData" | "protocol" | "commitInfo":
                    last[kind] = content
                case "domainMetadata":
                    domains[content["domain"]] = content
        vectors = [file["deletionVector"] for file in files.values() if file.get("deletionVector")]
        truth: Json = {
            "txnId": last["commitInfo"].get("txnId"),
            "tableSizeBytes": sum(file["size"] for file in files.values()),
            "numFiles": len(files),
            "numDeletionVectorsOpt": len(vectors),
            "numDeletedRecordsOpt": sum(vector["cardinality"] for vector in vectors),
            "inCommitTimestampOpt": last["commitInfo"].get("inCommitTimestamp"),
            "metadata": last["metaData"],
            "protocol": last["protocol"],
            "domainMetadata": [domain for domain in domains.values() if not domain["removed"]],
            "allFiles": list(files.values()),
        }
        yield {name: _plain(value) for name, value in truth.items()}


def _plain(value: object) -> object:
    """The value without order where there is none, without what is null or empty."""
    match value:
        case Mapping():
            plain = {key: _plain(item) for key, item in value.items() if key != "dataChange"}
            return {key: item for key, item in plain.items() if item not in (None, {}, [])}
        case list():
            return sorted((_plain(item) for item in value), key=repr)
        case _:
            return value
