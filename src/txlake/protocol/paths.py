"""Paths of data files: in the log, in stores, and as partition folders.

Owns the two encodings that meet in `add.path`: the percent-encoding of a URI (RFC 2396) around the
whole path, and Hive's escape of partition values inside it. Which places a log's paths may name is
`reach`'s. Source: PROTOCOL.md, "Add File and Remove File"; Hive's and Spark's partition folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# What a URI may hold unescaped in its path; all else is percent-encoded as UTF-8.
_URI_SAFE = "/!$&'()*+,;=:@-._~"
# Hive and Spark escape these in a partition folder, and every control character but NUL, which no
# file system takes in a name: they can't write such a partition, and read it by the log.
_HIVE_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def decode_path(path_in_log: str) -> str:
    """Return the path of `add.path` without its percent-encoding; in a URL, the path part is
    decoded.
    """
    return unquote(path_in_log, errors="surrogateescape") if "%" in path_in_log else path_in_log


def encode_path(path: str) -> str:
    """Return the path as `add.path` holds it: percent-encoded where a URI can't hold a character.

    `decode_path(encode_path(p)) == p`. A relative path whose first part looks like a URL scheme
    (`a:b/c`) has its colon encoded, so that it stays relative.
    """
    encoded = quote(path, safe=_URI_SAFE, errors="surrogateescape")
    scheme = _SCHEME.match(encoded)
    if scheme is not None:
        colon = scheme.end() - 1
        encoded = f"{encoded[:colon]}%3A{encoded[colon + 1 :]}"
    return encoded


def is_absolute(path_in_log: str) -> bool:
    """Return whether the path is a URL or starts at the root, rather than below the table."""
    return path_in_log.startswith("/") or _SCHEME.match(path_in_log) is not None


def absolute_url(table_url: str, path_in_log: str) -> str:
    """Return the encoded URL of a path in the log. `table_url` is encoded, with or without a final
    `/`.

    A path from the root keeps the table's scheme and host; Hadoop's `file:/x` becomes `file:///x`.
    To check that the table's files may lie there, call `reach.Reach.url` instead.
    """
    if _SCHEME.match(path_in_log) is not None:
        return normalise_url(path_in_log)
    if path_in_log.startswith("//"):
        path_in_log = "/" + path_in_log.lstrip("/")
    if path_in_log.startswith("/"):
        return f"{_root_of(table_url)}{path_in_log}"
    return f"{table_url.rstrip('/')}/{path_in_log}"


def normalise_url(url: str) -> str:
    """Return one spelling for one place: scheme in lower case, `file:/x` as `file:///x`, s3a and
    s3n as s3.
    """
    scheme, _, rest = url.partition(":")
    folded = scheme.lower()
    if folded == "file":
        return f"file:///{rest.lstrip('/')}"
    return f"{'s3' if folded in ('s3a', 's3n') else folded}:{rest}"


def _root_of(url: str) -> str:
    """Return scheme and host of a URL: `s3://bucket` of `s3://bucket/a/b`."""
    start, separator, rest = url.partition("://")
    return f"{start}{separator}{rest.partition('/')[0]}" if separator else ""


def escape_partition(value: str) -> str:
    """Return the value as part of a partition folder's name, as Hive and Spark escape it.

    The empty text gives the name of the null folder.
    """
    if not value:
        return NULL_PARTITION
    return "".join(f"%{ord(c):02X}" if c in _HIVE_ESCAPED else c for c in value)


def unescape_partition(text: str) -> str | None:
    """Return the value of a partition folder's name; None for the null folder."""
    return None if text == NULL_PARTITION else unquote(text, errors="surrogateescape")


def partition_folder(values: Iterable[tuple[str, str | None]]) -> str:
    """Return the folder of a partition, such as `day=2026-01-05/city=K%C3%B6ln`, not yet
    percent-encoded.

    `values` are (physical name, serialised value) in the order of the partition columns; no columns
    give the empty text.
    """
    return "/".join(
        f"{escape_partition(name)}={escape_partition(value or '')}" for name, value in values
    )
