from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlake.protocol.paths import (
    absolute_url,
    decode_path,
    encode_path,
    escape_partition,
    is_absolute,
    normalise_url,
    partition_folder,
    unescape_partition,
)


@given(st.text())
def test_encoding_a_path_and_decoding_it_gives_the_path(path: str) -> None:
    assert decode_path(encode_path(path)) == path


@given(st.text(min_size=1))
def test_a_relative_path_stays_relative_however_it_looks(path: str) -> None:
    assert not is_absolute(encode_path(path.lstrip("/") or "a"))


@pytest.mark.parametrize(
    ("path", "encoded"),
    [
        ("part-0.parquet", "part-0.parquet"),
        ("a b%20c", "a%20b%2520c"),
        ("p=1%3A2/x", "p=1%253A2/x"),
        ("köln/#?.parquet", "k%C3%B6ln/%23%3F.parquet"),
        ("k=a,b;c&d+e$f@g!h'(i)*~", "k=a,b;c&d+e$f@g!h'(i)*~"),
        ("a:b/c", "a%3Ab/c"),
        ("p=a:b/c", "p=a:b/c"),
    ],
)
def test_only_what_a_uri_cant_hold_is_encoded(path: str, encoded: str) -> None:
    assert encode_path(path) == encoded


@pytest.mark.parametrize(
    ("path", "absolute"),
    [
        ("s3://b/x", True),
        ("file:/x", True),
        ("/x", True),
        ("hdfs:///x", True),
        ("x/y", False),
        ("p=a:b/x", False),
    ],
)
def test_absolute_paths_are_urls_or_start_at_the_root(path: str, absolute: bool) -> None:
    assert is_absolute(path) is absolute


@pytest.mark.parametrize(
    ("table", "path", "url"),
    [
        ("s3://b/t", "p=1/x%20y", "s3://b/t/p=1/x%20y"),
        ("s3://b/t/", "x", "s3://b/t/x"),
        ("s3://b/t", "s3a://c/x", "s3://c/x"),
        ("file:///t", "file:/u/x", "file:///u/x"),
        ("file:///t", "/u/x", "file:///u/x"),
        ("s3://b/t", "/u/x", "s3://b/u/x"),
        ("s3://b/t", "//u/x", "s3://b/u/x"),
    ],
)
def test_the_url_of_a_file(table: str, path: str, url: str) -> None:
    assert absolute_url(table, path) == url


def test_one_place_has_one_spelling() -> None:
    spellings = ("file:/a/b", "file:///a/b", "FILE:/a/b", "file://a/b".replace("//a", "///a"))
    assert {normalise_url(url) for url in spellings} == {"file:///a/b"}
    assert normalise_url("s3n://b/k") == normalise_url("s3://b/k")


def test_partition_folders_are_escaped_as_hive_escapes_them() -> None:
    folder = partition_folder([("day", "2020-01-01 10:00:00"), ("a=b", "x/y%z"), ("n", None)])
    assert folder == "day=2020-01-01 10%3A00%3A00/a%3Db=x%2Fy%25z/n=__HIVE_DEFAULT_PARTITION__"
    assert partition_folder([]) == ""
    assert partition_folder([("a", "")]) == "a=__HIVE_DEFAULT_PARTITION__"


@given(st.text(min_size=1))
def test_an_escaped_partition_value_is_one_folder_and_reads_back(value: str) -> None:
    escaped = escape_partition(value)
    assert not {"/", "\0"} & {*escaped}
    if value != "__HIVE_DEFAULT_PARTITION__":
        assert unescape_partition(escaped) == value


def test_the_null_folder_is_null() -> None:
    assert unescape_partition("__HIVE_DEFAULT_PARTITION__") is None
