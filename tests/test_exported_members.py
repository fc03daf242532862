"""The public surface, name by name and argument by argument: what is here is promised."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys

import pyspark.errors
import pytest

import txlake
import txlake.dbapi
import txlake.sqlalchemy
from txlake import errors
from txlake.lake.log import Committed, LogSnapshot, LogTransaction

STATEMENTS = {
    "sql": "text, args=None, *, read_version=None, reads=None",
    "read": "table, *, version=None, timestamp=None, where=None, columns=None",
    "changes": (
        "table, from_version=None, to_version=None, *, from_timestamp=None, to_timestamp=None"
    ),
    "write": (
        "df, table, mode='error', *, partition_by=None, replace_where=None, "
        "overwrite_schema=False, merge_schema=False, partition_overwrite='static', "
        "app_id=None, app_version=None, read_version=None, reads=None"
    ),
    "table": "table, *, read_version=None, reads=None",
}
SESSION = {
    **STATEMENTS,
    "session": "",
    "transaction": "isolation=None, read_only=False",
    "begin": "isolation=None, read_only=False",
    "run": "work, isolation=None, attempts=5",
    "changes_of": "sequence",
    "conflicts": "",
    "explain_conflicts": "sql",
    "locks": "",
    "transactions": "",
    "view": "name",
    "attach": "location, name=None",
    "detach": "name",
    "read_stream": "table, **options",
    "write_stream": (
        "df, table, *, checkpoint, output_mode='append', trigger=None, merge_schema=False, "
        "overwrite_schema=False, partition_by=None, user_metadata=None, query_name=None"
    ),
    "foreach_batch": (
        "df, work, *, checkpoint, output_mode='append', trigger=None, isolation=None, "
        "attempts=5, query_name=None"
    ),
    "close": "",
}
MEMBERS: dict[type, dict[str, str | None]] = {
    txlake.Lake: {
        **SESSION,
        "branch": "name, *, create=False, at=None, origin=None, retention_ms=None",
        "branches": "",
        "maintain": ("*, once=False, every=None, budget=None, budget_bytes=None, dry_run=False"),
        "recover": "*locations",
        "move_catalog": "to",
    },
    txlake.LakeSession: dict(SESSION),
    txlake.Branch: {
        **SESSION,
        "changes": (
            "table=None, from_version=None, to_version=None, *, from_timestamp=None, "
            "to_timestamp=None"
        ),
        "drop": "",
        "explain_publish": "",
        "name": None,
        "publish": "*, per_table=False",
        "rebase": "",
    },
    txlake.Transaction: {
        **STATEMENTS,
        "commit": "",
        "rollback": "",
        "savepoint": "name",
        "rollback_to": "name",
        "id": None,
        "state": None,
        "sequence": None,
    },
    txlake.Log: {
        "snapshot": "version=None, timestamp=None",
        "update": "",
        "checkpoint": "",
        "history": "limit=None",
        "over": "log",
        "start_transaction": "isolation=None, read_version=None",
    },
    LogSnapshot: {
        "app_version": "app_id",
        "arrow_schema": None,
        "domain": "name",
        "files": "where=None",
        "metadata": None,
        "partition_columns": None,
        "properties": None,
        "protocol": None,
        "schema": None,
        "timestamp_ms": None,
        "version": None,
    },
    LogTransaction: {
        "app_version": "app_id",
        "commit": "actions, operation='WRITE', parameters=None, tags=None, user_metadata=None",
        "read": "where=None, *, files=True",
        "read_files": "paths",
        "read_version": None,
        "snapshot": None,
    },
    Committed: {"attempts": None, "rebased_over": None, "version": None},
    txlake.DeltaTable: {
        "addFeatureSupport": "featureName",
        "alias": "aliasName",
        "branch": "name, create=False",
        "branches": "",
        "clone": "target, isShallow=False, replace=False, properties=None",
        "cloneAtTimestamp": ("timestamp, target, isShallow=False, replace=False, properties=None"),
        "cloneAtVersion": "version, target, isShallow=False, replace=False, properties=None",
        "convertToDelta": "sparkSession, identifier, partitionSchema=None",
        "create": "sparkSession=None",
        "createIfNotExists": "sparkSession=None",
        "createOrReplace": "sparkSession=None",
        "delete": "condition=None",
        "detail": "",
        "dropFeatureSupport": "featureName, truncateHistory=None",
        "forName": "sparkSession, tableOrViewName",
        "forPath": "sparkSession, path, hadoopConf={}",
        "generate": "mode",
        "history": "limit=None",
        "isDeltaTable": "sparkSession, identifier",
        "merge": "source, condition",
        "optimize": "",
        "replace": "sparkSession=None",
        "restoreToTimestamp": "timestamp",
        "restoreToVersion": "version",
        "toDF": "",
        "update": "condition=None, set=None",
        "upgradeTableProtocol": "readerVersion, writerVersion",
        "vacuum": "retentionHours=None",
    },
    txlake.DeltaMergeBuilder: {
        "execute": "",
        "whenMatchedDelete": "condition=None",
        "whenMatchedUpdate": "condition=None, set=None",
        "whenMatchedUpdateAll": "condition=None",
        "whenNotMatchedBySourceDelete": "condition=None",
        "whenNotMatchedBySourceUpdate": "condition=None, set=None",
        "whenNotMatchedInsert": "condition=None, values=None",
        "whenNotMatchedInsertAll": "condition=None",
        "withSchemaEvolution": "",
    },
    txlake.DeltaTableBuilder: {
        "addColumn": (
            "colName, dataType, nullable=True, generatedAlwaysAs=None, "
            "generatedByDefaultAs=None, comment=None"
        ),
        "addColumns": "cols",
        "clusterBy": "*cols",
        "comment": "comment",
        "execute": "",
        "location": "location",
        "partitionedBy": "*cols",
        "property": "key, value",
        "tableName": "identifier",
    },
    txlake.TableBranch: {
        "changes": "",
        "drop": "",
        "explain_publish": "",
        "publish": "",
        "rebase": "",
        "toDF": "",
    },
    txlake.DeltaOptimizeBuilder: {
        "executeCompaction": "",
        "executeZOrderBy": "*cols",
        "where": "partitionFilter",
    },
}
# What only looks at what is there already, or ends it whatever happens.
NEVER_FAILS = {
    "Branch": {"session", "close"},
    "Lake": {"session", "close"},
    "LakeSession": {"session", "close"},
    "Transaction": {"rollback"},
    "Log": {"over"},
    "LogSnapshot": {"app_version", "domain"},
    "LogTransaction": {"app_version"},
    "DeltaTable": {"optimize"},
    "DeltaMergeBuilder": {"withSchemaEvolution"},
}
ERRORS = {
    "TxlakeError": "Exception",
    "Conflict": "TxlakeError",
    "ConcurrentAppendException": "Conflict",
    "ConcurrentDeleteReadException": "Conflict",
    "ConcurrentDeleteDeleteException": "Conflict",
    "MetadataChangedException": "Conflict",
    "ConcurrentTransactionException": "Conflict",
    "ProtocolChangedException": "Conflict",
    "SerializableIsolationViolation": "Conflict",
    "UpdateConflict": "Conflict",
    "Deadlock": "Conflict",
    "Unavailable": "TxlakeError",
    "LockTimeout": "Unavailable",
    "OutcomeUnknown": "TxlakeError",
    "InvalidRequest": "TxlakeError",
    "CorruptTable": "TxlakeError",
    "UnsupportedFeature": "TxlakeError",
}
EVIDENCE = (
    "table", "read_version", "winning_version", "winning_operation", "winning_timestamp_ms",
    "winning_user", "rule", "predicate", "files", "rows", "isolation", "retry", "advice",
    "operation",
    "branch_commit",
)  # fmt: skip


def signature(member: object) -> str | None:
    """Names and defaults of the arguments; None for what isn't called."""
    function = getattr(member, "__func__", member)
    if not inspect.isfunction(function):
        return None
    given = list(inspect.signature(function).parameters.values())
    if given and given[0].name in ("self", "cls"):
        given = given[1:]
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in given]
    return str(inspect.Signature(plain))[1:-1]


def members(kind: type) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for base in reversed(kind.__mro__[:-1]):
        found.update(
            {name: signature(member) for name, member in vars(base).items() if name[0] != "_"}
        )
    return found


def test_the_package_exports() -> None:
    assert sorted(txlake.__all__) == [
        "Branch", "DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder",
        "IdentityGenerator", "Lake", "LakeSession", "Log", "RetrySettings", "Settings",
        "TableBranch", "Transaction", "TxlakeDataSource", "configure", "connect", "disable",
        "enable", "errors",
        "install_as_delta", "sources_tag", "uninstall_as_delta",
    ]  # fmt: skip
    assert set(txlake.__all__) <= set(dir(txlake))
    for name in txlake.__all__:
        assert getattr(txlake, name) is not None
    with pytest.raises(AttributeError, match="nope"):
        txlake.nope  # noqa: B018


def test_connects_arguments() -> None:
    assert signature(txlake.connect) == (
        "location=None, *, catalog=None, token=None, spark=None, storage_options=None, "
        "isolation=None, settings=None"
    )
    assert signature(txlake.Log.__init__) == "location, storage_options=None, *, settings=None"
    assert signature(txlake.sources_tag) == "sources"


def test_the_dialect_of_sqlalchemy() -> None:
    assert set(txlake.sqlalchemy.__all__) == {
        *("INTERVAL", "MAP", "STRUCT", "TIMESTAMP_NTZ", "TINYINT", "VARIANT", "Merge", "merge")
    }
    assert signature(txlake.sqlalchemy.merge) == "target"
    own = {
        name: members(txlake.sqlalchemy.Merge)[name]
        for name in vars(txlake.sqlalchemy.Merge)
        if not name.startswith("_")
    }
    assert own.keys() == {
        *("inherit_cache", "is_dml", "on", "source", "using", "when_matched_delete"),
        *("when_matched_update", "when_not_matched_by_source_delete"),
        *("when_not_matched_by_source_update", "when_not_matched_insert", "with_schema_evolution"),
    }


def test_the_database_api() -> None:
    assert signature(txlake.dbapi.connect) == (
        "dsn=None, *, token=None, catalog=None, spark=None, storage_options=None, isolation=None, "
        "settings=None, database=None, autocommit=False, timeout_s=330.0"
    )
    own = members(txlake.dbapi.Connection)
    errors_of = {name for name in own if isinstance(getattr(txlake.dbapi, name, None), type)}
    assert {name: own[name] for name in own.keys() - errors_of} == {
        "cursor": "",
        "execute": "operation, parameters=None",
        "commit": "",
        "rollback": "",
        "in_transaction": None,
        "autocommit": None,
        "isolation_level": None,
        "close": "",
    }
    assert members(txlake.dbapi.Cursor) == {
        "connection": None,
        "description": None,
        "rowcount": None,
        "execute": "operation, parameters=None",
        "executemany": "operation, seq_of_parameters",
        "fetchone": "",
        "fetchmany": "size=None",
        "fetchall": "",
        "fetch_arrow_table": "",
        "fetch_df": "",
        "setinputsizes": "sizes",
        "setoutputsize": "size, column=None",
        "close": "",
    }


def test_the_arguments_of_sparks_own_doors() -> None:
    assert signature(txlake.enable) == "spark, lake"
    assert signature(txlake.configure) == (
        "builder, location, *, catalog=None, storage_options=None, isolation=None, settings=None"
    )
    assert signature(txlake.disable) == "spark"
    assert signature(txlake.install_as_delta) == ""
    assert signature(txlake.uninstall_as_delta) == ""
    own = {"name", "schema", "reader", "writer", "streamReader", "streamWriter"}
    assert own <= {name for name in vars(txlake.TxlakeDataSource) if name[0] != "_"}


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_the_members_of(kind: type) -> None:
    assert members(kind) == MEMBERS[kind]


def raised(function: object) -> set[str]:
    """The errors that a docstring names after the word Raises, all of which can be caught."""
    text = " ".join(re.split(r"\bRaises:?\s", function.__doc__ or "")[1:])
    referred = set(re.findall(r"`(?:\w+\.)?(\w+)`", "".join(re.findall(r"as `[\w.]+`", text))))
    assert referred <= {name for kind in MEMBERS for name in MEMBERS[kind]}
    named = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+", re.sub("`.*?`", "", text)))
    assert named <= {*ERRORS, *vars(builtins), *vars(pyspark.errors)}
    return named | referred | ({"Conflict", "Unavailable"} & set(re.findall(r"\w+", text)))


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_what_can_fail_says_how(kind: type) -> None:
    functions = {
        name: getattr(member, "__func__", member)
        for name in MEMBERS[kind]
        if inspect.isroutine(member := inspect.getattr_static(kind, name))
    }
    silent = {name for name, function in functions.items() if not raised(function)}
    assert silent == NEVER_FAILS.get(kind.__name__, set())


def test_the_functions_say_how_they_fail() -> None:
    doors = (txlake.configure, txlake.enable, txlake.disable, txlake.install_as_delta)
    assert all(map(raised, (txlake.connect, txlake.sources_tag, txlake.Log, *doors)))


def test_the_errors() -> None:
    found = {
        name: kind.__mro__[1].__name__
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception) and name == kind.__name__
    }
    assert found == ERRORS
    assert errors.DeltaConcurrentModificationException is errors.Conflict
    assert errors.ConcurrentWriteException is errors.Conflict
    assert {
        name: getattr(errors, name).codes for name in ERRORS if getattr(errors, name).codes
    } == {
        "SerializableIsolationViolation": (1023,),
        "UpdateConflict": (24556, 24706),
        "Deadlock": (1205,),
        "LockTimeout": (1222,),
    }
    assert tuple(errors.Evidence.__dataclass_fields__) == EVIDENCE


def test_the_import_starts_nothing() -> None:
    program = (
        "import sys, txlake; txlake.Log; "
        "loaded = {'pyspark', 'sqlalchemy', 'txlake.sql'} & set(sys.modules); "
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
