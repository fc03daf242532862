"""No credential is shown: in messages, causes, logs, reprs, catalog, commits, or the terminal."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import pkgutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from typer.testing import CliRunner

import txlake
from tests.storage.conftest import s3_client, s3_options
from txlake.cli.app import app
from txlake.errors import InvalidRequest, TxlakeError
from txlake.lake.lake import open_session
from txlake.redaction import redact
from txlake.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["s3_options"]

SENTINEL = "S3NTIN3L"
KEY_ID = f"AKIA{SENTINEL}KEYID00"
SECRET = f"{SENTINEL}/secret+with=signs"
TOKEN = f"{SENTINEL}-session-token"
# Nothing listens there.
NOWHERE = "127.0.0.1:9"

OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3://bucket/wh": {
        "aws_access_key_id": KEY_ID,
        "aws_secret_access_key": SECRET,
        "aws_session_token": TOKEN,
        "aws_endpoint": f"http://{NOWHERE}",
        "aws_region": "us-east-1",
        "allow_http": "true",
        "max_retries": "0",
    },
    "az://container/wh": {
        "azure_storage_account_name": "account",
        "azure_storage_account_key": "UzNOVElOM0w=",
        "azure_endpoint": f"http://{NOWHERE}/account",
        "allow_http": "true",
        "max_retries": "0",
    },
    "az://container/signed": {
        "azure_storage_account_name": "account",
        "azure_storage_sas_token": f"?sv=2024-01-01&sp=rw&sig={SENTINEL}%2Fabc%3D",
        "azure_endpoint": f"http://{NOWHERE}/account",
        "allow_http": "true",
        "max_retries": "0",
    },
    "abfss://container@account.dfs.core.windows.net/wh": {
        "azure_storage_token": TOKEN,
        "azure_endpoint": f"http://{NOWHERE}/account",
        "allow_http": "true",
        "max_retries": "0",
    },
}
# No option of these can be used: what is wrong is said without their values.
BAD_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3://bucket/a": {"aws_secret_access_keyy": SECRET},
    "s3://bucket/b": {"aws_secret_access_key": SECRET, "timeout": "soon"},
    "gs://bucket/a": {"google_service_account_key": f'{{"private_key": "{SECRET}"'},
    "az://container/a": {
        "azure_storage_account_name": "account",
        "azure_storage_account_key": f"{SENTINEL}!not base64",
    },
}
# Places with a credential in them, which are refused.
PLACES = (
    f"s3://{KEY_ID}:{SENTINEL}@bucket/t",
    f"s3://{SENTINEL}:@bucket/t",
    f"gs://user:{SENTINEL}@bucket/t",
    f"nope://user:{SENTINEL}@host/t",
    f"abfss://user:{SENTINEL}@account@host/t",
)
CATALOGS = (
    f"postgresql+psycopg://user:{SENTINEL}@{NOWHERE}/db",
    f"postgresql+psycopg://user@{NOWHERE}/db?password={SENTINEL}",
    f"postgresql+psycopg://user@{NOWHERE}/db?sslpassword={SENTINEL}",
    f"postgresql+psycopg://user:{SENTINEL}@host:port/db",
    f"postgresql+psycopg://user:a/{SENTINEL}@host/db",
    f"postgresql+nodriver://user:{SENTINEL}@host/db",
    f"nodatabase://user:{SENTINEL}@host/db",
    f"user:{SENTINEL}@host",
    f"mysql+pymysql://user:{SENTINEL}@host/db",
)


@pytest.fixture(autouse=True)
def _nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No record of any logger, at any level, holds the sentinel."""
    caplog.set_level(logging.DEBUG)
    yield
    told = [record.getMessage() for record in caplog.records]
    assert not [text for text in told if SENTINEL in text]


def _whole(error: BaseException) -> str:
    """What a program prints that doesn't catch the error: with causes and contexts."""
    return "".join(traceback.format_exception(error)) + repr(error)


def _failing(work: Callable[[], object], kind: type[Exception] = TxlakeError) -> str:
    with pytest.raises(kind) as raised:
        work()
    return _without_source(_whole(raised.value))


def _without_source(text: str) -> str:
    """A traceback shows lines of this file, where the sentinel has its name."""
    return "\n".join(line for line in text.splitlines() if f"{Path(__file__).name}" not in line)


@pytest.mark.parametrize("place", OPTIONS)
def test_a_store_that_cannot_be_reached(place: str) -> None:
    store = open_store(place, OPTIONS[place])
    for work in (
        lambda: store.get("x"),
        lambda: store.get_range("x", 0, 9),
        lambda: store.head("x"),
        lambda: list(store.list("")),
        lambda: store.put("x", b""),
        lambda: store.delete(["x"]),
        lambda: store.ensure_safe(),
        lambda: txlake.Log(place, storage_options=dict(OPTIONS[place])).snapshot(),
    ):
        said = _failing(work)
        assert SENTINEL not in said
        assert "UzNOVElOM0w" not in said
    assert SENTINEL not in repr(store)


@pytest.mark.parametrize("place", BAD_OPTIONS)
def test_options_that_cannot_be_used(place: str) -> None:
    assert SENTINEL not in _failing(lambda: open_store(place, BAD_OPTIONS[place]).get("x"))


@pytest.mark.parametrize("place", PLACES)
def test_places_with_credentials_are_refused(place: str) -> None:
    assert SENTINEL not in _failing(lambda: open_store(place))


@pytest.mark.parametrize("url", CATALOGS)
def test_a_catalog_that_cannot_be_reached(tmp_path: Path, url: str) -> None:
    def opened() -> object:
        return open_session(str(tmp_path), make_spark=_no_spark, catalog=url)

    assert SENTINEL not in _failing(opened)


def _no_spark() -> Any:
    pytest.fail("nothing here needs Spark")


@pytest.mark.parametrize("url", CATALOGS)
def test_the_terminal_shows_no_password(tmp_path: Path, url: str) -> None:
    for more in ([], ["--json"]):
        shown = CliRunner().invoke(app, ["locks", "-l", str(tmp_path), "--catalog", url, *more])
        assert shown.exit_code
        assert SENTINEL not in shown.output + shown.stderr
        assert shown.exception is None or isinstance(shown.exception, SystemExit)


@pytest.mark.parametrize("option", [SECRET, f"={SECRET}", f"secret:{SENTINEL}"])
def test_the_terminal_shows_no_option(tmp_path: Path, option: str) -> None:
    arguments = ["locks", "-l", "s3://bucket/wh", "--storage-option", option]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code
    assert SENTINEL not in shown.output + shown.stderr


# --- values that hold options -----------------------------------------------------------------


_ORCHESTRATORS = ("txlake.airflow.", "txlake.dagster.")


def _classes() -> Iterator[type]:
    for module in pkgutil.walk_packages(txlake.__path__, "txlake."):
        # Airflow and Dagster aren't in this environment.
        if ".migrations." in module.name or module.name.startswith(_ORCHESTRATORS):
            continue
        for found in vars(importlib.import_module(module.name)).values():
            if dataclasses.is_dataclass(found) and isinstance(found, type):
                yield found


def test_no_repr_shows_storage_options() -> None:
    names = {"storage_options", "options", "secrets", "patient", "once"}
    found = [
        (each.__name__, item.name)
        for each in set(_classes())
        for item in dataclasses.fields(each)
        if item.name in names and each.__module__.startswith("txlake.")
        if item.repr and each.__module__ != "txlake.protocol.actions"
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"http://h/c?sig={SENTINEL}%3D&se=1", "http://h/c?sig=***&se=1"),
        (f"<AWSAccessKeyId>{SENTINEL}</AWSAccessKeyId>", "<AWSAccessKeyId>***</AWSAccessKeyId>"),
        (f"password={SENTINEL} host=h", "password=*** host=h"),
        (f"aws_secret_access_key: '{SENTINEL}'", "aws_secret_access_key: '***'"),
        (f"AWS_SECRET_KEY = '{SENTINEL}'", "AWS_SECRET_KEY = '***'"),
        (f"fs.s3a.secret.key={SENTINEL}", "fs.s3a.secret.key=***"),
        ("the key = 5 rows", "the key = 5 rows"),
    ],
)
def test_what_looks_like_a_credential_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


# --- a lake on a bucket -----------------------------------------------------------------------


@pytest.mark.broad
@pytest.mark.no_interop("it is in a bucket")
def test_nothing_of_a_lake_on_a_bucket_holds_a_credential(
    tmp_path: Path,
    spark: SparkSession,
    s3_options: dict[str, str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = f"{SENTINEL}-of-the-bucket"
    options = {**s3_options, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": TOKEN}
    catalog = tmp_path / "catalog.db"
    with txlake.connect(
        "s3://lake/secrets", catalog=f"sqlite:///{catalog}", spark=spark, storage_options=options
    ) as lake:
        lake.sql("CREATE TABLE t AS SELECT id FROM range(4)")
        lake.sql("DELETE FROM t WHERE id = 1; OPTIMIZE t; CREATE TABLE u SHALLOW CLONE t")
        frame = lake.read("t")
        frame.explain("extended")
        assert frame.count() == 3
        for view in ("txlake.commits", "sys.dm_tran_active_transactions", "sys.tables"):
            lake.sql(f"SELECT * FROM {view}").show(truncate=False)
        lake.sql("DESCRIBE HISTORY t").show(truncate=False)
        lake.sql("DESCRIBE DETAIL t").show(truncate=False)
        lake.sql("EXPLAIN EXTENDED SELECT * FROM t").show(truncate=False)
        shown = "".join(map(repr, (lake, lake.session(), lake.begin(), lake.table("t"))))
        shown += repr(lake._session.engine) + repr(lake._session)
        with s3_client(options) as client:
            for item in client.list_objects_v2(Bucket="lake", Prefix="secrets/")["Contents"]:
                body = client.get_object(Bucket="lake", Key=item["Key"])["Body"].read()
                assert SENTINEL.encode() not in body
                if item["Key"].endswith(".parquet"):
                    client.delete_object(Bucket="lake", Key=item["Key"])
        # Its files are gone: tasks say so.
        spark.catalog.clearCache()
        shown += _failing(lambda: lake.sql("SELECT sum(id) FROM u").collect(), PySparkException)
    assert SENTINEL not in shown
    assert SENTINEL.encode() not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )
    printed = capfd.readouterr()
    assert SENTINEL not in printed.out + printed.err


def test_a_statement_that_is_refused_repeats_no_credential(
    tmp_path: Path, spark: SparkSession
) -> None:
    with txlake.connect(str(tmp_path / "warehouse"), spark=spark) as lake:
        copied = f"COPY INTO t FROM 's3://b/x' WITH (CREDENTIAL (AWS_SECRET_KEY = '{SENTINEL}'))"
        for text in (
            f"SELECT * FROM delta.`{PLACES[0]}`",
            f"CREATE TABLE t (id INT) LOCATION '{PLACES[0]}'",
            f"CONVERT TO DELTA parquet.`{PLACES[0]}`",
            f"COPY INTO t FROM '{PLACES[0]}' FILEFORMAT = PARQUET",
            f"{copied} FILEFORMAT = PARQUET",
            f"CREATE TABLE t (id INT) USING jdbc OPTIONS (password = '{SENTINEL}')",
        ):
            with pytest.raises(InvalidRequest) as raised:
                lake.sql(text)
            assert SENTINEL not in _without_source(_whole(raised.value)), text
