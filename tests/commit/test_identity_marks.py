"""The marks of identity columns move with the commits that give values."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.commit.committing import actions_at, begin, info_at, lines_at
from tests.commit.log_of import LogOf, add, metadata
from txlake.commit.rebase import Committed
from txlake.commit.table_transaction import TableTransaction
from txlake.errors import MetadataChangedException
from txlake.protocol.actions import Metadata
from txlake.protocol.identity import marks_of
from txlake.protocol.types import parse_schema

TAG = "delta.identity.schemaUpdate"


def of_identity(mark: int | None = None, **configuration: str) -> Metadata:
    """The metadata of a table whose column id counts up by two from 1."""
    plain = metadata({key.replace("__", "."): value for key, value in configuration.items()})
    schema = json.loads(plain.schema_string or "")
    about = {"start": 1, "step": 2, "allowExplicitInsert": False, "highWaterMark": mark}
    schema["fields"][0]["metadata"] = {
        f"delta.identity.{key}": value for key, value in about.items() if value is not None
    }
    return msgspec.structs.replace(plain, schema_string=json.dumps(schema))


@pytest.fixture
def table() -> LogOf:
    """A table without rows."""
    made = LogOf()
    transaction = begin(made)
    transaction.stage([of_identity()], operation="CREATE TABLE")
    transaction.commit()
    return made


def insert(transaction: TableTransaction, path: str, mark: int) -> None:
    transaction.stage([add(path)], operation="WRITE", identity_marks={"id": mark})


def inserted(table: LogOf, path: str, mark: int) -> Committed:
    transaction = begin(table)
    insert(transaction, path, mark)
    return transaction.commit()


def mark(table: LogOf) -> int | None:
    return marks_of(table.open().latest().schema, "t").get("id")


def tags(table: LogOf, version: int) -> object:
    return info_at(table, version).get("tags", {})


def test_a_commit_that_gives_values_moves_the_mark(table: LogOf) -> None:
    inserted(table, "a", 3)
    assert mark(table) == 3
    assert lines_at(table, 1) == ["commitInfo", "metaData", "add"]
    assert tags(table, 1) == {TAG: "true"}
    assert info_at(table, 1)["isBlindAppend"] is True


def test_a_mark_that_is_there_is_not_said_again(table: LogOf) -> None:
    inserted(table, "a", 7)
    inserted(table, "b", 5)
    assert mark(table) == 7
    assert lines_at(table, 2) == ["commitInfo", "add"]
    assert tags(table, 2) == {}


def test_the_transaction_sees_its_own_mark(table: LogOf) -> None:
    transaction = begin(table)
    insert(transaction, "a", 3)
    assert marks_of(transaction.view.schema, "t") == {"id": 3}
    token = transaction.savepoint()
    insert(transaction, "b", 9)
    assert marks_of(transaction.view.schema, "t") == {"id": 9}
    transaction.rollback_to(token)
    assert marks_of(transaction.view.schema, "t") == {"id": 3}
    transaction.commit()
    assert mark(table) == 3


def test_other_metadata_goes_with_the_mark(table: LogOf) -> None:
    transaction = begin(table)
    transaction.stage([of_identity(a="b")], operation="SET TBLPROPERTIES")
    insert(transaction, "a", 3)
    transaction.commit()
    assert lines_at(table, 1).count("metaData") == 1
    [found] = [one for one in actions_at(table, 1) if isinstance(one, Metadata)]
    assert found.configuration == {"a": "b"}
    assert marks_of(parse_schema(found.schema_string), "t") == {"id": 3}
    assert tags(table, 1) == {}  # others must not take it for harmless


def test_values_of_a_table_that_is_replaced_say_nothing_of_the_next(table: LogOf) -> None:
    transaction = begin(table)
    insert(transaction, "a", 9)
    file = transaction.view.files.get(("a", None))
    assert file is not None
    replaced = msgspec.structs.replace(of_identity(), id="another-id")
    transaction.stage(
        [replaced, file.tombstone(timestamp_ms=1)], operation="CREATE OR REPLACE TABLE"
    )
    insert(transaction, "b", 1)
    transaction.commit()
    assert mark(table) == 1


def test_a_mark_that_is_synced_follows_none_that_moved(table: LogOf) -> None:
    transaction = begin(table)
    transaction.stage([of_identity(9)], operation="CHANGE COLUMN")
    inserted(table, "a", 3)
    with pytest.raises(MetadataChangedException):
        transaction.commit()


def test_two_that_give_values_conflict(table: LogOf) -> None:
    first, second = begin(table), begin(table)
    insert(first, "a", 1)
    insert(second, "b", 1)
    first.commit()
    with pytest.raises(MetadataChangedException):
        second.commit()
    assert mark(table) == 1


def test_who_gives_none_goes_on_with_the_mark_of_others(table: LogOf) -> None:
    inserted(table, "a", 1)
    transaction = begin(table)
    file = transaction.base.files.get(("a", None))
    assert file is not None
    transaction.read(text="id = 1")
    transaction.stage([file.tombstone(timestamp_ms=1)], operation="DELETE")
    inserted(table, "b", 5)
    assert transaction.commit().rebased_over == (2,)
    assert mark(table) == 5


def test_a_change_of_metadata_goes_on_over_marks(table: LogOf) -> None:
    changing = begin(table)
    changing.stage([of_identity(more="set")], operation="SET TBLPROPERTIES")
    inserted(table, "a", 3)
    inserted(table, "b", 5)
    assert changing.commit().rebased_over == (1, 2)
    newest = table.open().latest()
    assert newest.metadata.configuration["more"] == "set"
    assert mark(table) == 5


def test_a_change_of_metadata_goes_on_over_marks_and_another_change(table: LogOf) -> None:
    changing, other = begin(table), begin(table)
    changing.stage([of_identity(more="set")], operation="SET TBLPROPERTIES")
    theirs = msgspec.structs.replace(of_identity(3), description="new")
    other.stage([theirs], operation="SET TBLPROPERTIES")
    other.commit()
    assert changing.commit().rebased_over == (1,)
    newest = table.open().latest().metadata
    assert (newest.description, newest.configuration["more"]) == ("new", "set")
    assert mark(table) == 3


def test_two_changes_of_one_property_conflict(table: LogOf) -> None:
    changing, other = begin(table), begin(table)
    changing.stage([of_identity(more="set")], operation="SET TBLPROPERTIES")
    other.stage([of_identity(3, more="other")], operation="SET TBLPROPERTIES")
    other.commit()
    with pytest.raises(MetadataChangedException, match="changed property more"):
        changing.commit()


def test_who_gave_values_and_changed_the_metadata_does_not_go_on(table: LogOf) -> None:
    changing = begin(table)
    insert(changing, "a", 3)
    changing.stage([of_identity(more="set")], operation="SET TBLPROPERTIES")
    inserted(table, "b", 3)
    with pytest.raises(MetadataChangedException):
        changing.commit()
