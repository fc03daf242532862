from __future__ import annotations

import hashlib
from typing import Any

import pytest
from dbt.tests.adapter.constraints import fixtures
from dbt.tests.adapter.constraints.test_constraints import (
    BaseConstraintQuotedColumn,
    BaseConstraintsRollback,
    BaseConstraintsRuntimeDdlEnforcement,
    BaseIncrementalConstraintsColumnsEqual,
    BaseIncrementalConstraintsRollback,
    BaseIncrementalConstraintsRuntimeDdlEnforcement,
    BaseIncrementalContractSqlHeader,
    BaseIncrementalForeignKeyConstraint,
    BaseModelConstraintsRuntimeEnforcement,
    BaseTableConstraintsColumnsEqual,
    BaseTableContractSqlHeader,
    BaseViewConstraintsColumnsEqual,
)
from dbt.tests.adapter.persist_docs.test_persist_docs import (
    BasePersistDocs,
    BasePersistDocsAllColumnsMissing,
    BasePersistDocsColumnMissing,
    BasePersistDocsCommentOnQuotedColumn,
    BasePersistDocsQuotedColumnCaseSensitive,
    BasePersistDocsQuotedDescriptionNotAppliedOnMismatch,
)
from dbt.tests.adapter.store_test_failures_tests.test_store_test_failures import (
    BaseStoreTestFailures,
    BaseStoreTestFailuresLimit,
)
from dbt.tests.util import run_dbt


class _Types:
    """The types of the tests of contracts."""

    @pytest.fixture
    def string_type(self) -> str:
        return "string"

    @pytest.fixture
    def int_type(self) -> str:
        return "int"

    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "int", "int"],
            ["'1'", "string", "string"],
            ["true", "boolean", "boolean"],
            ["cast('2013-11-03 00:00:00-07' as timestamp)", "timestamp", "timestamp"],
            ["cast('2013-11-03' as timestamp_ntz)", "timestamp_ntz", "timestamp_ntz"],
            ["array('a', 'b')", "array<string>", "array<string>"],
            ["array(1, 2)", "array<int>", "array<int>"],
            ["cast('1' as decimal(10,2))", "decimal(10,2)", "decimal(10,2)"],
        ]


class TestTableConstraintsColumnsEqual(_Types, BaseTableConstraintsColumnsEqual): ...


class TestViewConstraintsColumnsEqual(_Types, BaseViewConstraintsColumnsEqual): ...


class TestIncrementalConstraintsColumnsEqual(_Types, BaseIncrementalConstraintsColumnsEqual): ...


_ROWS = """
insert into <model_identifier> (id, {color}, date_day)
select id, {color}, date_day from (
    {upstream}
    select 'blue' as {color}, 1 as id, '2019-01-01' as date_day
) as model_rows
"""
_UPSTREAM = "-- depends_on: <foreign_key_model_identifier>"
_TABLE = "create or replace table <model_identifier> "


def _check(expression: str) -> str:
    """Return a CHECK with the name that the adapter gives one without."""
    digest = hashlib.sha256(expression.encode()).hexdigest()[:12]
    return f"constraint check_{digest} check ({expression})"


class _ColumnsOfConstraints:
    """Constraints of one column become the table's, unless SQL has them at columns."""

    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return f"""{_TABLE} (
            id integer not null, color text, date_day text, primary key (id),
            {_check("(id > 0)")}, {_check("id >= 1")},
            foreign key (id) references <foreign_key_model_identifier> (id)
        ) ; {_ROWS.format(color="color", upstream=_UPSTREAM)}"""


class TestConstraintsRuntimeDdlEnforcement(
    _ColumnsOfConstraints, BaseConstraintsRuntimeDdlEnforcement
): ...


class TestIncrementalConstraintsRuntimeDdlEnforcement(
    _ColumnsOfConstraints, BaseIncrementalConstraintsRuntimeDdlEnforcement
): ...


class TestModelConstraintsRuntimeEnforcement(BaseModelConstraintsRuntimeEnforcement):
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return f"""{_TABLE} (
            id integer not null, color text, date_day text,
            {_check("(id > 0)")}, {_check("id >= 1")}, primary key (id),
            foreign key (id) references <foreign_key_model_identifier> (id)
        ) ; {_ROWS.format(color="color", upstream=_UPSTREAM)}"""


class TestConstraintQuotedColumn(BaseConstraintQuotedColumn):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        quoted = fixtures.my_model_with_quoted_column_name_sql.replace('"from"', "`from`")
        schema = fixtures.model_quoted_column_schema_yml.replace('"from"', "`from`")
        return {"my_model.sql": quoted, "constraints_schema.yml": schema}

    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return f"""{_TABLE} (
            id integer not null, `from` text not null, date_day text, {_check("(`from` = 'blue')")}
        ) ; {_ROWS.format(color="`from`", upstream="")}"""


class _Violated:
    """What an INSERT of NULL into a column of NOT NULL says."""

    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["DELTA_NOT_NULL_CONSTRAINT_VIOLATED", "nothing was written"]


class TestConstraintsRollback(_Violated, BaseConstraintsRollback): ...


class TestIncrementalConstraintsRollback(_Violated, BaseIncrementalConstraintsRollback): ...


class _SqlHeader:
    """The tests' header and query in Spark's words; theirs are PostgreSQL's."""

    MODEL = ""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        model = self.MODEL.replace("set session time zone", "set time zone")
        schema: str = fixtures.model_contract_header_schema_yml
        return {
            "my_model_contract_sql_header.sql": model.replace(
                "current_setting('timezone')", "current_timezone()"
            ),
            "constraints_schema.yml": schema.replace("data_type: text", "data_type: string"),
        }


class TestTableContractSqlHeader(_SqlHeader, BaseTableContractSqlHeader):
    MODEL = fixtures.my_model_contract_sql_header_sql


class TestIncrementalContractSqlHeader(_SqlHeader, BaseIncrementalContractSqlHeader):
    MODEL = fixtures.my_model_incremental_contract_sql_header_sql


class TestIncrementalForeignKeyConstraint(BaseIncrementalForeignKeyConstraint): ...


class TestGrants:
    """A lake has no grants: the config is refused by name, before anything is built."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        grants = "grants={'select': ['somebody']}"
        return {
            f"a_{kind}.sql": f"{{{{ config(materialized='{kind}', {grants}) }}}} select 1 as id"
            for kind in ("table", "view", "incremental")
        }

    def test_grants_are_refused(self, project: Any) -> None:
        results = run_dbt(["run"], expect_pass=False)
        assert len(results) == 3
        for result in results:
            assert "a lake has none (select)" in result.message
        assert project.run_sql(f"show tables in {project.test_schema}", fetch="all") == []
        assert project.run_sql(f"show views in {project.test_schema}", fetch="all") == []


class TestConfigsOfTables:
    """Configs that a table has, and those of other adapters, which are refused."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        configs = {
            "good": "cluster_by=['id'], tblproperties={'delta.appendOnly': 'true'}",
            "parted": "partition_by='day'",
            "format": "file_format='parquet'",
            "buckets": "clustered_by='id', buckets=4",
        }
        query = "select 1 as id, date '2026-01-01' as day"
        return {
            f"{name}.sql": f"{{{{ config(materialized='table', {text}) }}}} {query}"
            for name, text in configs.items()
        }

    def test_configs(self, project: Any) -> None:
        results = run_dbt(["run"], expect_pass=False)
        said = {result.node.name: result.message for result in results}
        assert "file_format: parquet: tables of a lake are Delta's" in said["format"]
        assert "dbt-txlake doesn't have this config" in said["buckets"]
        shown = f"describe detail {project.test_schema}."
        good = project.run_sql(shown + "good", fetch="one")
        assert good[8] == ["id"]
        assert good[11]["delta.appendOnly"] == "true"
        assert project.run_sql(shown + "parted", fetch="one")[7] == ["day"]
        tables = project.run_sql(f"show tables in {project.test_schema}", fetch="all")
        assert sorted(row[1] for row in tables) == ["good", "parted"]


class TestPersistDocs(BasePersistDocs): ...


class TestPersistDocsColumnMissing(BasePersistDocsColumnMissing): ...


class TestPersistDocsAllColumnsMissing(BasePersistDocsAllColumnsMissing): ...


class TestPersistDocsQuotedColumnCaseSensitive(BasePersistDocsQuotedColumnCaseSensitive): ...


class TestPersistDocsCommentOnQuotedColumn(BasePersistDocsCommentOnQuotedColumn): ...


class TestPersistDocsQuotedDescriptionNotAppliedOnMismatch(
    BasePersistDocsQuotedDescriptionNotAppliedOnMismatch
): ...


class TestStoreTestFailures(BaseStoreTestFailures): ...


class TestStoreTestFailuresLimit(BaseStoreTestFailuresLimit): ...
