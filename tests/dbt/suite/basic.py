from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.basic import expected_catalog
from dbt.tests.adapter.basic.test_adapter_methods import BaseAdapterMethod
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_docs_generate import BaseDocsGenerate, BaseDocsGenReferences
from dbt.tests.adapter.basic.test_empty import BaseEmpty
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_get_catalog_for_single_relation import (
    BaseGetCatalogForSingleRelation,
)
from dbt.tests.adapter.basic.test_incremental import (
    BaseIncremental,
    BaseIncrementalBadStrategy,
    BaseIncrementalNotSchemaChange,
)
from dbt.tests.adapter.basic.test_singular_tests import BaseSingularTests
from dbt.tests.adapter.basic.test_singular_tests_ephemeral import BaseSingularTestsEphemeral
from dbt.tests.adapter.basic.test_snapshot_check_cols import BaseSnapshotCheckCols
from dbt.tests.adapter.basic.test_snapshot_timestamp import BaseSnapshotTimestamp
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, TableMetadata


class TestAdapterMethod(BaseAdapterMethod): ...


class TestSimpleMaterializations(BaseSimpleMaterializations): ...


class TestEmpty(BaseEmpty): ...


class TestEphemeral(BaseEphemeral): ...


class TestGenericTests(BaseGenericTests): ...


class TestIncremental(BaseIncremental): ...


class TestIncrementalBadStrategy(BaseIncrementalBadStrategy): ...


class TestIncrementalNotSchemaChange(BaseIncrementalNotSchemaChange): ...


class TestSingularTests(BaseSingularTests): ...


class TestSingularTestsEphemeral(BaseSingularTestsEphemeral): ...


class TestSnapshotCheckCols(BaseSnapshotCheckCols): ...


class TestSnapshotTimestamp(BaseSnapshotTimestamp): ...


class TestTableMaterialization(BaseTableMaterialization): ...


class TestValidateConnection(BaseValidateConnection): ...


_TYPES = {
    "role": None,
    "id_type": "bigint",
    "text_type": "string",
    "time_type": "timestamp",
    "view_type": "view",
    "table_type": "table",
    "model_stats": expected_catalog.no_stats(),
}


class TestDocsGenerate(BaseDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> Any:
        return expected_catalog.base_expected_catalog(project, **_TYPES)


class TestDocsGenReferences(BaseDocsGenReferences):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> Any:
        return expected_catalog.expected_references_catalog(project, bigint_type="bigint", **_TYPES)


class TestGetCatalogForSingleRelation(BaseGetCatalogForSingleRelation):
    def _expected(self, project: Any, name: str, kind: str) -> CatalogTable:
        types = {"id": "bigint", "updated_at": "timestamp"}
        columns = ("id", "first_name", "email", "ip_address", "updated_at")
        return CatalogTable(
            metadata=TableMetadata(type=kind, schema=project.test_schema, name=name, comment=None),
            columns={
                column: ColumnMetadata(
                    type=types.get(column, "string"), index=index, name=column, comment=None
                )
                for index, column in enumerate(columns, 1)
            },
            stats={},
        )

    @pytest.fixture(scope="class")
    def expected_catalog_my_seed(self, project: Any) -> CatalogTable:
        return self._expected(project, "my_seed", "table")

    @pytest.fixture(scope="class")
    def expected_catalog_my_view_model(self, project: Any) -> CatalogTable:
        return self._expected(project, "my_view_model", "view")
