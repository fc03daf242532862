"""What dbt's macros ask a lake: its tables and views, their columns, the catalog of docs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.impl import AdapterConfig, ConstraintSupport
from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import (
    Capability,
    CapabilityDict,
    CapabilitySupport,
    Support,
)
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.sql import SQLAdapter
from dbt.adapters.txlake.connections import TxlakeConnectionManager
from dbt.adapters.txlake.credentials import LAKE
from dbt.adapters.txlake.relations import TxlakeColumn, TxlakeRelation
from dbt_common.contracts.constraints import ConstraintType, ModelLevelConstraint
from dbt_common.dataclass_schema import dbtClassMixin

if TYPE_CHECKING:
    import agate


@dataclass
class TxlakeConfig(AdapterConfig, dbtClassMixin):
    """Configs of a model besides dbt's own.

    Attributes:
        partition_by, cluster_by: columns, or one.
        tblproperties: of the table, such as delta.enableChangeDataFeed.
        location_root: the folder in which the table gets its own.
    """

    partition_by: list[str] | str | None = None
    cluster_by: list[str] | str | None = None
    tblproperties: dict[str, str] | None = None
    location_root: str | None = None


class TxlakeAdapter(SQLAdapter):
    """dbt's adapter for a lake."""

    Relation = TxlakeRelation
    Column = TxlakeColumn
    ConnectionManager = TxlakeConnectionManager
    connections: TxlakeConnectionManager
    AdapterSpecificConfigs = TxlakeConfig

    CONSTRAINT_SUPPORT = {
        ConstraintType.check: ConstraintSupport.ENFORCED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_ENFORCED,
    }
    _capabilities = CapabilityDict(
        {
            Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Full),
            Capability.GetCatalogForSingleRelation: CapabilitySupport(support=Support.Full),
        }
    )

    @classmethod
    def date_function(cls) -> str:
        return "current_timestamp()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return False

    @classmethod
    def quote(cls, identifier: str) -> str:
        return f"`{str(identifier).replace('`', '``')}`"

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "string"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        import agate

        return "double" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "bigint"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "bigint"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "timestamp"

    @classmethod
    def convert_time_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "string"

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "merge", "delete+insert", "insert_overwrite", "microbatch"]

    # --- names ------------------------------------------------------------------------------------

    def list_schemas(self, database: str | None) -> list[str]:
        return [row[0] for row in self._rows("SHOW DATABASES")]

    def check_schema_exists(self, database: str | None, schema: str) -> bool:
        return schema.lower() in (name.lower() for name in self.list_schemas(database))

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        schema = schema_relation.schema
        if schema is None or not self.check_schema_exists(None, schema):
            return []
        quoted = self.quote(schema)
        return [
            self.Relation.create(database=LAKE, schema=schema, identifier=row[1], type=kind)
            for kind, word in ((RelationType.Table, "TABLES"), (RelationType.View, "VIEWS"))
            for row in self._rows(f"SHOW {word} IN {quoted}")
            if not row[2]
        ]

    def _found(self, relation: BaseRelation) -> BaseRelation | None:
        """Return the table or view of a name as the lake has it; None if there is none."""
        name = (relation.identifier or "").lower()
        for found in self.list_relations_without_caching(relation):
            if (found.identifier or "").lower() == name:
                return found
        return None

    # --- columns ----------------------------------------------------------------------------------

    @available.parse(lambda *_, **__: [])
    def get_columns_in_relation(self, relation: BaseRelation) -> list[TxlakeColumn]:
        if self._found(relation) is None:
            return []
        return [self.Column.create(name, kind) for name, kind, _ in self._described(relation)]

    def _described(self, relation: BaseRelation) -> list[tuple[str, str, str | None]]:
        """Return the columns of a table or view: name, type, comment."""
        columns = []
        for row in self._rows(f"DESCRIBE TABLE {relation.render()}"):
            if not row[0] or row[0].startswith("#"):
                break
            columns.append((row[0], row[1], row[2]))
        return columns

    @classmethod
    def render_raw_columns_constraints(
        cls, raw_columns: Mapping[str, Mapping[str, Any]]
    ) -> list[str]:
        """Return the columns of a table, and behind them the constraints of one column that SQL
        has for tables only.
        """
        columns, constraints = [], []
        for column in raw_columns.values():
            name = cls.quote(column["name"]) if column.get("quote") else column["name"]
            parts = [name, column["data_type"]]
            for raw in column.get("constraints") or []:
                parsed = cls._parse_column_constraint(raw)
                text = cls.process_parsed_constraint(parsed, cls.render_column_constraint)
                if text is None:
                    continue
                if parsed.type in (ConstraintType.not_null, ConstraintType.custom):
                    parts.append(text)
                else:
                    of_table = {**raw, "columns": [name]}
                    constraints.append(
                        cls.render_model_constraint(cls._parse_model_constraint(of_table))
                    )
            columns.append(" ".join(parts))
        return columns + [text for text in constraints if text is not None]

    @classmethod
    def render_model_constraint(cls, constraint: ModelLevelConstraint) -> str | None:
        """Return a constraint of a table. SQL wants a name for each CHECK."""
        if constraint.type == ConstraintType.check and not constraint.name:
            digest = hashlib.sha256((constraint.expression or "").encode()).hexdigest()
            constraint = replace(constraint, name=f"check_{digest[:12]}")
        return super().render_model_constraint(constraint)

    # --- docs -------------------------------------------------------------------------------------

    def get_catalog(
        self, relation_configs: Iterable[Any], used_schemas: frozenset[tuple[str, str]]
    ) -> tuple[agate.Table, list[Exception]]:
        with self.connection_named("catalog"):
            relations = [
                found
                for _, schema in sorted(used_schemas, key=str)
                for found in self.list_relations_without_caching(
                    self.Relation.create(database=LAKE, schema=schema)
                )
            ]
            return self._catalog(relations), []

    def get_catalog_by_relations(
        self, used_schemas: frozenset[tuple[str, str]], relations: set[BaseRelation]
    ) -> tuple[agate.Table, list[Exception]]:
        with self.connection_named("catalog"):
            found = [self._found(relation) for relation in sorted(relations, key=str)]
            return self._catalog([one for one in found if one is not None]), []

    def get_catalog_for_single_relation(self, relation: BaseRelation) -> Any:
        from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata

        found = self._found(relation)
        if found is None:
            return None
        return CatalogTable(
            metadata=TableMetadata(
                type=str(found.type),
                schema=found.schema or "",
                name=found.identifier or "",
                comment=self._comment(found),
            ),
            columns={
                name: ColumnMetadata(type=kind, index=index, name=name, comment=comment)
                for index, (name, kind, comment) in enumerate(self._described(found), 1)
            },
            stats={},
        )

    def _catalog(self, relations: Sequence[BaseRelation]) -> agate.Table:
        """Return a row for each column, as dbt's docs have them."""
        import agate
        from dbt_common.clients.agate_helper import DEFAULT_TYPE_TESTER

        rows = []
        for relation in relations:
            comment = self._comment(relation)
            for index, (name, kind, note) in enumerate(self._described(relation), 1):
                rows.append(
                    {
                        "table_database": relation.database,
                        "table_schema": relation.schema,
                        "table_name": relation.identifier,
                        "table_type": str(relation.type),
                        "table_comment": comment,
                        "table_owner": None,
                        "column_name": name,
                        "column_index": index,
                        "column_type": kind,
                        "column_comment": note,
                    }
                )
        return agate.Table.from_object(rows, column_types=DEFAULT_TYPE_TESTER)

    def _comment(self, relation: BaseRelation) -> str | None:
        """Return the comment on a table or view; None without one."""
        rows = self._rows(f"DESCRIBE EXTENDED {relation.render()}")
        return next((row[1] for row in reversed(rows) if row[0] == "Comment"), None) or None

    # --- rows -------------------------------------------------------------------------------------

    @available.parse_none
    def insert_rows(self, sql: str, rows: Iterable[Iterable[Any]]) -> None:
        """Insert rows of Python's values by an INSERT of one row of markers."""
        self.connections.insert_rows(sql, [list(row) for row in rows])

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, which becomes part of no transaction by itself."""
        _, cursor = self.connections.add_query(sql, auto_begin=False)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def debug_query(self) -> None:
        """Ask the lake something that needs no Spark, for `dbt debug`."""
        self.list_schemas(None)
