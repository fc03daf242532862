from __future__ import annotations

import json

import pytest

from tests.commit.log_of import PROTOCOL, metadata
from txlake.protocol.actions import DomainMetadata, Txn
from txlake.protocol.checksums import StateFacts, read_checksum, write_checksum

_FACTS = StateFacts(
    table_size_bytes=30, files=2, table_id="table-id", deletion_vectors=1, deleted_records=4
)


def test_what_is_written_is_read() -> None:
    data = write_checksum(
        _FACTS,
        protocol=PROTOCOL,
        metadata=metadata(),
        app_transactions=[Txn(app_id="a", version=1)],
        domains=[DomainMetadata(domain="d", configuration="{}", removed=False)],
        in_commit_timestamp_ms=5,
        txn_id="id",
    )
    assert read_checksum(data) == _FACTS
    value = json.loads(data)
    assert (value["numMetadata"], value["numProtocol"]) == (1, 1)
    assert value["txnId"] == "id"
    assert value["inCommitTimestampOpt"] == 5
    assert value["setTransactions"] == [{"appId": "a", "version": 1}]
    assert value["domainMetadata"] == [{"domain": "d", "configuration": "{}", "removed": False}]
    assert value["metadata"]["id"] == "table-id"
    assert value["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 2}


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"numFiles":"2","tableSizeBytes":1}', b"\0"])
def test_an_unreadable_one_says_nothing(data: bytes) -> None:
    assert read_checksum(data) is None


def test_contradictions_are_told_and_the_unknown_is_left_out() -> None:
    less = StateFacts(table_size_bytes=30, files=3, table_id=None)
    assert _FACTS.contradictions(less) == ["numFiles: expected 2, found 3"]
    assert _FACTS.contradictions(_FACTS) == []
