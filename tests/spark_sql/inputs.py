"""The files of Spark's own SQL tests: their statements, settings and test tables.

The rules are those of Spark's `SQLQueryTestHelper`. The files stay in the jar of Spark's test
classes, which `tools/spark_sql_tests.sh` brings; nothing of them is in this repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from zipfile import ZipFile

from tests.spark_sql.comparing import Answer

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "spark-sql-tests"
_INPUTS = "sql-tests/inputs/"
_RESULTS = "sql-tests/results/"
_DATA = "test-data/postgresql/"
_DELIMITER = "--QUERY-DELIMITER"
# An escaped `;` ends no statement, as in Spark's suite.
_END = re.compile(r"(?<=[^\\]);")
# Spark's own suite skips it: it is there to test the skipping.
_SKIPPED = "ignored.sql"
# How Spark computes an answer, not which one: such dimensions are not run again.
_PHYSICAL = re.compile(
    r"spark\.sql\.(codegen|join|optimizer|autoBroadcastJoinThreshold|optimizeNullAwareAntiJoin"
    r"|subexpressionElimination|adaptive)\b"
)

_ERROR = re.compile(r"(org|java|scala)\.[\w.$]+\n")
# The stand-ins of these functions give columns other names and types.
_REPLACED = re.compile(r"\b(udf|udaf|booleq|boolne|vol)\(", re.IGNORECASE)

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A file of statements.

    Attributes:
        name: its path below `sql-tests/inputs`.
        statements: in order, without comments between them.
        combinations: the settings of each run of the file.
        records: the answers of Spark's own run to the statements; empty where they aren't known.
    """

    name: str
    statements: tuple[str, ...]
    combinations: tuple[Settings, ...]
    records: tuple[Answer, ...] = ()


def jar() -> Path | None:
    """The jar of Spark's test classes; None where it isn't there."""
    return next(iter(sorted(FOLDER.glob("spark-sql*tests.jar"))), None)


def inputs(path: Path) -> list[Input]:
    """Every file in a jar, by name."""
    with ZipFile(path) as archive:
        names = archive.namelist()
        texts = {
            name.removeprefix(_INPUTS): archive.read(name).decode()
            for name in names
            if name.startswith(_INPUTS) and name.endswith(".sql")
        }
        results = {
            name.removeprefix(_RESULTS).removesuffix(".out"): archive.read(name).decode()
            for name in names
            if name.startswith(_RESULTS) and name.endswith(".sql.out")
        }
    return [
        with_records(parsed(name, texts), results.get(name, ""))
        for name in sorted(texts)
        if name != _SKIPPED
    ]


def parsed(name: str, texts: Mapping[str, str]) -> Input:
    """The file of that name. `texts`: of all files, which it may import."""
    comments, code = _split(texts[name])
    imported: list[str] = []
    for line in comments:
        if line.startswith("--IMPORT "):
            imported += _split(texts[line.removeprefix("--IMPORT ").strip()])[1]
    settings = tuple(
        setting
        for line in comments
        if line.startswith("--SET ")
        for setting in _settings(line.removeprefix("--SET "))
    )
    return Input(
        name=name,
        statements=tuple(_statements([*imported, *code])),
        combinations=tuple(settings + one for one in _combinations(comments)),
    )


def with_records(file: Input, result: str) -> Input:
    """The file with the answers that Spark's suite expects, where they are those of its settings.

    `result`: the suite's file, a query, its schema and its rows in turn.
    """
    if len(file.combinations) > 1 or _REPLACED.search("\n".join(file.statements)):
        return file
    parts = re.split(r"-- !query.*\n", result)[1:]
    queries, schemas, outputs = parts[::3], parts[1::3], parts[2::3]
    if tuple(one.strip() for one in queries) != file.statements or len(parts) % 3:
        return file
    records = tuple(
        _record(schema.strip(), output) for schema, output in zip(schemas, outputs, strict=True)
    )
    return replace(file, records=records)


def _record(schema: str, output: str) -> Answer:
    if schema == "struct<>" and _ERROR.match(output):
        return Answer(error=output)
    return Answer(schema=schema, rows=(output.rstrip(),))


def data(path: Path, name: str) -> str:
    """The rows of a test table, columns separated by tabs."""
    with ZipFile(path) as archive:
        return archive.read(f"{_DATA}{name}.data").decode()


def _split(text: str) -> tuple[list[str], list[str]]:
    """The lines that are comments, and the others."""
    comments: list[str] = []
    code: list[str] = []
    for line in text.split("\n"):
        start = line.strip()
        is_comment = start.startswith("--") and not start.startswith(_DELIMITER)
        (comments if is_comment else code).append(line)
    return comments, code


def _statements(code: Sequence[str]) -> Iterator[str]:
    for found in _delimited(code):
        lines = found.strip().split("\n")
        text = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if text:
            yield text


def _delimited(code: Sequence[str]) -> Iterator[str]:
    """The texts between delimiters as they are, all others split at each `;`."""
    lines: list[str] = []
    for line in code:
        start = line.strip()
        if start.startswith(f"{_DELIMITER}-START"):
            yield from _END.split("\n".join(lines))
            lines = []
        elif start.startswith(f"{_DELIMITER}-END"):
            yield "\n".join(lines).removesuffix(";")
            lines = []
        else:
            lines.append(line)
    yield from _END.split("\n".join(lines))


def _settings(text: str) -> Settings:
    pairs = (one.partition("=") for one in text.split(","))
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)


def _combinations(comments: Sequence[str]) -> list[Settings]:
    """One setting of each dimension, in every way that may give another answer."""
    dimensions: dict[str, list[Settings]] = {}
    for line in comments:
        if line.startswith("--CONFIG_DIM"):
            number, _, text = line.removeprefix("--CONFIG_DIM").partition(" ")
            dimensions.setdefault(number, []).append(_settings(text))
    found = [
        tuple(one for chosen in way for one in chosen if not _PHYSICAL.match(one[0]))
        for way in product(*dimensions.values())
    ]
    return list(dict.fromkeys(found))
