from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.adapter.concurrency.test_concurrency import (
    BaseConcurrency,
)
from dbt.tests.adapter.simple_copy.test_copy_uppercase import (
    BaseSimpleCopyUppercase,
)
from dbt.tests.adapter.simple_seed import fixtures, seeds
from dbt.tests.adapter.simple_seed.test_seed import (
    BaseBasicSeedTests,
    BaseSeedConfigFullRefreshOff,
    BaseSeedConfigFullRefreshOn,
    BaseSeedCustomSchema,
    BaseSeedParsing,
    BaseSeedSpecificFormats,
    BaseSeedWithEmptyDelimiter,
    BaseSeedWithUniqueDelimiter,
    BaseSeedWithWrongDelimiter,
    BaseSimpleSeedEnabledViaConfig,
    BaseSimpleSeedWithBOM,
    BaseTestEmptySeed,
)
from dbt.tests.adapter.simple_seed.test_seed_type_override import (
    BaseSimpleSeedColumnOverride,
)
from dbt.tests.util import run_dbt


class TestBasicSeedTests(BaseBasicSeedTests):
    def test_simple_seed_full_refresh_flag(self, project: Any) -> None:
        """A view over a replaced table stays: its text is planned when it is read."""
        self._build_relations_for_test(project)
        results = run_dbt(["seed", "--full-refresh"])
        self._check_relation_end_state(run_result=results, project=project, exists=True)


class TestSeedConfigFullRefreshOn(BaseSeedConfigFullRefreshOn):
    def test_simple_seed_full_refresh_config(self, project: Any) -> None:
        self._build_relations_for_test(project)
        self._check_relation_end_state(run_result=run_dbt(["seed"]), project=project, exists=True)


class TestSeedConfigFullRefreshOff(BaseSeedConfigFullRefreshOff): ...


class TestSeedCustomSchema(BaseSeedCustomSchema): ...


class TestSeedWithUniqueDelimiter(BaseSeedWithUniqueDelimiter): ...


class TestSeedWithWrongDelimiter(BaseSeedWithWrongDelimiter):
    def test_seed_with_wrong_delimiter(self, project: Any) -> None:
        results = run_dbt(["seed"], expect_pass=False)
        assert "the SQL is not understood" in results.results[0].message


class TestSeedWithEmptyDelimiter(BaseSeedWithEmptyDelimiter): ...


class TestSimpleSeedEnabledViaConfig(BaseSimpleSeedEnabledViaConfig): ...


class TestSeedParsing(BaseSeedParsing): ...


class TestSimpleSeedWithBOM(BaseSimpleSeedWithBOM):
    @pytest.fixture(scope="class", autouse=True)
    def setUp(self, project: Any) -> None:
        project.run_sql(seeds.seeds__expected_sql)
        folder = Path(seeds.__file__).parent
        shutil.copy(folder / "seed_bom.csv", Path(project.project_root) / "seeds")


class TestSeedSpecificFormats(BaseSeedSpecificFormats): ...


class TestTestEmptySeed(BaseTestEmptySeed): ...


class TestSimpleSeedColumnOverride(BaseSimpleSeedColumnOverride):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        schema = fixtures.properties__schema_yml
        for old, new in (
            ("text", "string"),
            ("integer", "bigint"),
            ("timestamp without time zone", "timestamp"),
        ):
            schema = schema.replace(f"type: {old}", f"type: {new}")
        return {"schema.yml": schema}

    @staticmethod
    def seed_enabled_types() -> dict[str, str]:
        return {"seed_id": "string", "birthday": "date"}

    @staticmethod
    def seed_tricky_types() -> dict[str, str]:
        columns = ("seed_id_str", "looks_like_a_bool", "looks_like_a_date")
        return dict.fromkeys(columns, "string")


class TestSimpleCopyUppercase(BaseSimpleCopyUppercase):
    @pytest.fixture(scope="class")
    def dbt_profile_target(self, warehouse: str) -> dict[str, Any]:
        return {"type": "txlake", "threads": 4, "warehouse": warehouse}


class TestConcurrency(BaseConcurrency): ...
