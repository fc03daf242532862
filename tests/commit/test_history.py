from __future__ import annotations

from txlake.commit.history import HISTORY_SCHEMA, history_row
from txlake.protocol.actions import CommitInfo

_COLUMNS = [
    "version", "timestamp", "userId", "userName", "operation", "operationParameters", "job",
    "notebook", "clusterId", "readVersion", "isolationLevel", "isBlindAppend", "operationMetrics",
    "userMetadata", "engineInfo",
]  # fmt: skip


def test_columns_are_those_of_delta_spark_in_their_order() -> None:
    assert HISTORY_SCHEMA.names == _COLUMNS
    assert list(history_row(0, None, 0)) == _COLUMNS


def test_a_full_row() -> None:
    info = CommitInfo(
        {
            "timestamp": 5,
            "userId": "7",
            "userName": "ada",
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": ["a"], "flag": True},
            "job": {"jobId": "1", "jobName": "j", "extra": 1},
            "notebook": {"notebookId": "n", "notebookPath": "p"},
            "clusterId": "c",
            "readVersion": 3,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {"numFiles": "2", "numOutputRows": 9},
            "userMetadata": "m",
            "engineInfo": "e",
            "txnId": "t",
        }
    )
    row = history_row(4, info, 1_500)
    assert (row["version"], row["timestamp"]) == (4, 1_500)
    assert row["operationParameters"] == {"mode": "Append", "partitionBy": '["a"]', "flag": "true"}
    assert row["operationMetrics"] == {"numFiles": "2", "numOutputRows": "9"}
    assert row["notebook"] == {"notebookId": "n"}
    job = row["job"]
    assert isinstance(job, dict)
    assert (job["jobId"], job["jobOwnerId"]) == ("1", None)


def test_a_commit_that_says_nothing() -> None:
    row = history_row(2, None, 9)
    assert {name for name, value in row.items() if value is not None} == {"version", "timestamp"}


def test_facts_of_another_type_are_left_out() -> None:
    info = CommitInfo({"operation": 1, "isBlindAppend": "true", "job": "x", "readVersion": True})
    row = history_row(0, info, 0)
    assert [row[name] for name in ("operation", "isBlindAppend", "job", "readVersion")] == [
        None
    ] * 4
