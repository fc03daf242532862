"""What Spark keeps in the checkpoint of a streaming query."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from txlake.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NO_PATH = "PATH_NOT_FOUND"


_PATTERN_SIGN = re.compile(r"[{}\[\]*?\\]")


def id_of_query(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of a checkpoint's query, which is the same after each start.

    Raises InvalidRequest for an invalid file, and Spark's AnalysisException if there is none.
    """
    lines = spark.read.text(_in_checkpoint(checkpoint, "metadata"), wholetext=True).collect()
    try:
        return str(json.loads(lines[0][0])["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InvalidRequest(
            f"{checkpoint}/metadata: expected the id of a streaming query, found {lines!r:.100}; "
            "give the query a new checkpoint"
        ) from error


def find_query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of a checkpoint's query; None if no query has begun.

    Raises InvalidRequest for an invalid file.
    """
    try:
        return id_of_query(spark, checkpoint)
    except AnalysisException as error:
        if error.getCondition() != _NO_PATH:
            raise
        return None


def last_batch_done(spark: SparkSession, checkpoint: str) -> int:
    """Return the number of the last micro-batch that Spark has recorded as done; -1 for none."""
    try:
        files = spark.read.text(_in_checkpoint(checkpoint, "commits")).inputFiles()
    except AnalysisException as error:
        if error.getCondition() != _NO_PATH:
            raise
        return -1
    names = (file.rpartition("/")[2] for file in files)
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _in_checkpoint(checkpoint: str, name: str) -> str:
    """Return the path of a file or folder in a checkpoint, escaped for Spark's readers."""
    place = _PATTERN_SIGN.sub(r"\\\g<0>", checkpoint.rstrip("/"))
    return f"{place}/{name}"
