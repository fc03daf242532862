"""A transaction's facts as OpenLineage's run events: START, and COMPLETE, ABORT, FAIL or OTHER.

Source: OpenLineage's specification 2-0-2, its facets, and its naming of jobs and datasets.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

import attr
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
)
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)

from txlake.protocol.type_text import short_text
from txlake.protocol.types import Field, Struct
from txlake.release import VERSION
from txlake.session.lineage.columns import Origin
from txlake.session.lineage.facts import TableFacts, TransactionFacts
from txlake.session.lineage.writes import together

PRODUCER = f"urn:txlake:{VERSION}"
SCHEMAS = "urn:txlake:openlineage:1-0-0:"
"""What the URLs of txlake's own facets begin with; docs/openlineage has their schemas."""
_STATES = {
    "committed": RunState.COMPLETE,
    "rolled back": RunState.ABORT,
    "failed": RunState.FAIL,
    # The run hasn't ended as far as anybody knows.
    "unknown": RunState.OTHER,
}
_NAME_MAX = 200


@attr.define
class TxlakeTransactionRunFacet(RunFacet):
    """The transaction: its outcome, its isolation level, its branch."""

    outcome: str
    isolation: str | None = None
    branch: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMAS}TxlakeTransactionRunFacet"


@attr.define
class TxlakeConflictRunFacet(RunFacet):
    """Why a transaction lost to a concurrent one: no condition and no row."""

    error: str
    table: str
    rule: str
    readVersion: int  # noqa: N815
    winningVersion: int  # noqa: N815
    isolation: str
    retry: bool
    advice: str
    operation: str | None = None
    winningOperation: str | None = None  # noqa: N815

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMAS}TxlakeConflictRunFacet"


def events_of(facts: TransactionFacts, namespace: str) -> tuple[RunEvent, RunEvent]:
    """Return the two events of a transaction's run, in the namespace of its job."""
    job = Job(
        namespace=namespace,
        name=job_name(facts.tables),
        facets={
            "jobType": job_type_job.JobTypeJobFacet(
                processingType="BATCH",
                integration="TXLAKE",
                jobType="TRANSACTION",
                producer=PRODUCER,
            )
        },
    )
    inputs = [_input(table) for table in facts.tables if table.is_input]
    outputs = [_output(table) for table in facts.tables if table.is_output]
    return (
        _event(
            facts, facts.begin_ms, RunState.START, job, {"processing_engine": _engine()}, [], []
        ),
        _event(
            facts, facts.end_ms, _STATES[facts.outcome], job, _run_facets(facts), inputs, outputs
        ),
    )


def job_name(tables: Sequence[TableFacts]) -> str:
    """Return the name of a transaction's job: what it does to which tables.

    Transactions that do the same to the same tables are runs of one job.
    """
    written = sorted(f"{one.operation} {one.lake_name}" for one in tables if one.is_output)
    read = sorted(one.lake_name for one in tables)
    return (", ".join(written) or f"READ {', '.join(read)}")[:_NAME_MAX]


def _event(
    facts: TransactionFacts,
    time_ms: int,
    state: RunState,
    job: Job,
    facets: dict[str, RunFacet],
    inputs: list[InputDataset],
    outputs: list[OutputDataset],
) -> RunEvent:
    time = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return RunEvent(
        eventType=state,
        eventTime=time.isoformat(timespec="milliseconds"),
        run=Run(runId=facts.id, facets=facets),
        job=job,
        inputs=inputs,
        outputs=outputs,
        producer=PRODUCER,
    )


def _engine() -> RunFacet:
    return processing_engine_run.ProcessingEngineRunFacet(
        version=VERSION, name="txlake", producer=PRODUCER
    )


def _run_facets(facts: TransactionFacts) -> dict[str, RunFacet]:
    """Return the facets of the run at its end."""
    facets: dict[str, RunFacet] = {
        "processing_engine": _engine(),
        "txlake_transaction": TxlakeTransactionRunFacet(
            outcome=facts.outcome,
            isolation=None if facts.level is None else facts.level.value,
            branch=facts.branch,
            producer=PRODUCER,
        ),
    }
    if facts.error is not None:
        advice = "" if facts.evidence is None else f": {facts.evidence.advice}"
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=f"{facts.error}{advice}", programmingLanguage="PYTHON", producer=PRODUCER
        )
    if facts.error is not None and facts.evidence is not None:
        evidence = facts.evidence
        facets["txlake_conflict"] = TxlakeConflictRunFacet(
            error=facts.error,
            table=evidence.table,
            rule=evidence.rule,
            readVersion=evidence.read_version,
            winningVersion=evidence.winning_version,
            isolation=evidence.isolation,
            retry=evidence.retry,
            advice=evidence.advice,
            operation=evidence.operation,
            winningOperation=evidence.winning_operation,
            producer=PRODUCER,
        )
    return facets


def _input(table: TableFacts) -> InputDataset:
    facets = _dataset_facets(table, table.read_version)
    return InputDataset(namespace=table.namespace, name=table.name, facets=facets)


def _output(table: TableFacts) -> OutputDataset:
    """Return an output; a committed one has a version, statistics and column lineage."""
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=table.rows, size=table.size_bytes, fileCount=table.files, producer=PRODUCER
    )
    facets = _dataset_facets(table, table.written_version)
    origins = None
    if table.written_version is not None:
        origins = together(table.writes, [item.name for item in table.fields])
    if origins is not None:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                name: column_lineage_dataset.Fields(inputFields=_inputs_of(of_one))
                for name, of_one in origins.columns.items()
            },
            dataset=_inputs_of(origins.whole or ()),
            producer=PRODUCER,
        )
    return OutputDataset(
        namespace=table.namespace,
        name=table.name,
        facets=facets,
        outputFacets={} if table.written_version is None else {"outputStatistics": statistics},
    )


def _inputs_of(origins: Iterable[Origin]) -> list[column_lineage_dataset.InputField]:
    """Return columns, each once, with the ways in which they are used."""
    uses: dict[tuple[str, str, str], list[column_lineage_dataset.Transformation]] = {}
    for one in sorted(origins):
        uses.setdefault((one.namespace, one.dataset, one.column), []).append(
            column_lineage_dataset.Transformation(type=one.kind, subtype=one.subtype or None)
        )
    return [
        column_lineage_dataset.InputField(
            namespace=namespace, name=name, field=column, transformations=ways
        )
        for (namespace, name, column), ways in uses.items()
    ]


def _dataset_facets(table: TableFacts, version: int | None) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(
            fields=[_field(item) for item in table.fields], producer=PRODUCER
        ),
        "storage": storage_dataset.StorageDatasetFacet(
            storageLayer="delta", fileFormat="parquet", producer=PRODUCER
        ),
    }
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=str(version), producer=PRODUCER
        )
    if table.lake is not None:
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(
            identifiers=[
                symlinks_dataset.Identifier(
                    namespace=table.lake, name=table.lake_name, type="TABLE"
                )
            ],
            producer=PRODUCER,
        )
    return facets


def _field(item: Field) -> schema_dataset.SchemaDatasetFacetFields:
    """Return a column with its type and comment, a struct with its own fields."""
    comment = item.metadata.get("comment")
    nested = item.type.fields if isinstance(item.type, Struct) else ()
    return schema_dataset.SchemaDatasetFacetFields(
        name=item.name,
        type="struct" if nested else short_text(item.type),
        description=comment if isinstance(comment, str) else None,
        fields=[_field(one) for one in nested],
    )
