from __future__ import annotations

from typing import Any

from dbt.tests.adapter.aliases.test_aliases import (
    BaseAliasErrors,
    BaseAliases,
    BaseSameAliasDifferentSchemas,
)
from dbt.tests.adapter.caching.test_caching import (
    BaseCachingLowercaseModel,
    BaseCachingSelectedSchemaOnly,
    BaseCachingUppercaseModel,
    BaseNoPopulateCache,
)
from dbt.tests.adapter.dbt_clone.test_dbt_clone import (
    BaseCloneNotPossible,
    BaseClonePossible,
    BaseCloneSameTargetAndState,
)
from dbt.tests.adapter.dbt_debug.test_dbt_debug import (
    BaseDebugInvalidProjectPostgres,
    BaseDebugPostgres,
    BaseDebugProfileVariable,
)
from dbt.tests.adapter.dbt_show.test_dbt_show import (
    BaseShowDoesNotHandleDoubleLimit,
    BaseShowLimit,
    BaseShowSqlHeader,
)
from dbt.tests.adapter.empty.test_empty import (
    BaseTestEmpty,
    BaseTestEmptyInlineSourceRef,
)
from dbt.tests.adapter.ephemeral.test_ephemeral import (
    BaseEphemeralErrorHandling,
)
from dbt.tests.adapter.hooks import test_model_hooks
from dbt.tests.adapter.hooks.test_model_hooks import (
    BaseDuplicateHooksInConfigs,
    BaseHookRefs,
    BaseHooksRefsOnSeeds,
    BasePrePostModelHooks,
    BasePrePostModelHooksInConfig,
    BasePrePostModelHooksInConfigKwargs,
    BasePrePostModelHooksInConfigWithCount,
    BasePrePostModelHooksOnSeeds,
    BasePrePostModelHooksOnSeedsPlusPrefixed,
    BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace,
    BasePrePostModelHooksOnSnapshots,
    BasePrePostSnapshotHooksInConfigKwargs,
)
from dbt.tests.adapter.hooks.test_run_hooks import (
    BaseAfterRunHooks,
    BasePrePostRunHooks,
)
from dbt.tests.adapter.query_comment.test_query_comment import (
    BaseEmptyQueryComments,
    BaseMacroArgsQueryComments,
    BaseMacroInvalidQueryComments,
    BaseMacroQueryComments,
    BaseNullQueryComments,
    BaseQueryComments,
)
from dbt.tests.adapter.relations.test_changing_relation_type import (
    BaseChangeRelationTypeValidator,
)
from dbt.tests.adapter.relations.test_dropping_schema_named import (
    BaseDropSchemaNamed,
)
from dbt.tests.adapter.sample_mode.test_sample_mode import (
    BaseSampleModeTest,
)

SOURCE = test_model_hooks


class _ModelHooks:
    """What hooks have written: the suite compares with a profile of PostgreSQL's."""

    table = "on_model_hook"
    thread = "Thread-"

    def check_hooks(self, state: str, project: Any, host: Any = None, count: int = 1) -> None:
        place = f"{project.test_schema}.{self.table}"
        rows = project.run_sql(f"select * from {place} where test_state = '{state}'", fetch="all")
        assert len(rows) == count
        for _, _, _, name, schema, kind, _, _, threads, started_at, invocation, thread in rows:
            assert (name, schema, kind, threads) == ("default", project.test_schema, "txlake", 4)
            assert started_at
            assert invocation
            assert thread.startswith(self.thread)


class _RunHooks(_ModelHooks):
    table = "on_run_hook"
    thread = "MainThread"


class TestAliases(BaseAliases): ...


class TestAliasErrors(BaseAliasErrors): ...


class TestSameAliasDifferentSchemas(BaseSameAliasDifferentSchemas): ...


class TestCachingLowercaseModel(BaseCachingLowercaseModel): ...


class TestCachingUppercaseModel(BaseCachingUppercaseModel): ...


class TestCachingSelectedSchemaOnly(BaseCachingSelectedSchemaOnly): ...


class TestNoPopulateCache(BaseNoPopulateCache): ...


class TestCloneNotPossible(BaseCloneNotPossible): ...


class TestCloneSameTargetAndState(BaseCloneSameTargetAndState): ...


class TestClonePossible(BaseClonePossible): ...


class TestDebugPostgres(BaseDebugPostgres): ...


class TestDebugInvalidProjectPostgres(BaseDebugInvalidProjectPostgres): ...


class TestDebugProfileVariable(BaseDebugProfileVariable): ...


class TestShowSqlHeader(BaseShowSqlHeader): ...


class TestShowLimit(BaseShowLimit): ...


class TestShowDoesNotHandleDoubleLimit(BaseShowDoesNotHandleDoubleLimit):
    DATABASE_ERROR_MESSAGE = "unexpected 'limit'"


class TestTestEmpty(BaseTestEmpty): ...


class TestTestEmptyInlineSourceRef(BaseTestEmptyInlineSourceRef): ...


class TestEphemeralErrorHandling(BaseEphemeralErrorHandling): ...


class TestPrePostModelHooks(_ModelHooks, BasePrePostModelHooks): ...


class TestHookRefs(_ModelHooks, BaseHookRefs): ...


class TestPrePostModelHooksOnSeeds(BasePrePostModelHooksOnSeeds): ...


class TestHooksRefsOnSeeds(BaseHooksRefsOnSeeds): ...


class TestPrePostModelHooksOnSeedsPlusPrefixed(BasePrePostModelHooksOnSeedsPlusPrefixed): ...


class TestPrePostModelHooksOnSnapshots(BasePrePostModelHooksOnSnapshots): ...


class TestPrePostModelHooksInConfig(_ModelHooks, BasePrePostModelHooksInConfig): ...


class TestPrePostModelHooksInConfigWithCount(
    _ModelHooks, BasePrePostModelHooksInConfigWithCount
): ...


class TestPrePostModelHooksInConfigKwargs(_ModelHooks, BasePrePostModelHooksInConfigKwargs): ...


class TestPrePostSnapshotHooksInConfigKwargs(BasePrePostSnapshotHooksInConfigKwargs): ...


class TestDuplicateHooksInConfigs(BaseDuplicateHooksInConfigs): ...


class TestPrePostModelHooksOnSeedsPlusPrefixedWhitespace(
    BasePrePostModelHooksOnSeedsPlusPrefixedWhitespace
): ...


class TestPrePostRunHooks(_RunHooks, BasePrePostRunHooks): ...


class TestAfterRunHooks(BaseAfterRunHooks): ...


class TestQueryComments(BaseQueryComments): ...


class TestMacroQueryComments(BaseMacroQueryComments): ...


class TestMacroArgsQueryComments(BaseMacroArgsQueryComments): ...


class TestMacroInvalidQueryComments(BaseMacroInvalidQueryComments): ...


class TestNullQueryComments(BaseNullQueryComments): ...


class TestEmptyQueryComments(BaseEmptyQueryComments): ...


class TestChangeRelationTypeValidator(BaseChangeRelationTypeValidator): ...


class TestDropSchemaNamed(BaseDropSchemaNamed): ...


class TestSampleModeTest(BaseSampleModeTest): ...
