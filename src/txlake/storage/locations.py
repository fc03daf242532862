"""Locations of stores: paths and URLs as users write them, and their one canonical form.

Owns the rules of encoding. A path is literal text; a URL is percent-decoded when it is read and
percent-encoded when it is made, so that `locate(root.url)` is `root` again.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote, unquote

from txlake.errors import InvalidRequest

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_SAFE = "/=:@,"
_NO_NAMES = frozenset({"", ".", ".."})
_CLOUD_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfss",
    "abfss": "abfss",
}
# Schemes of file systems that are only reachable by a mount.
_MOUNTS = ("dbfs",)
_HDFS_SCHEMES = ("hdfs", "webhdfs", "swebhdfs")
_MEMORY_NAME = "default"
_HOST = re.compile(r"([^:\[\]]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class StoreKind(Enum):
    """The kind of storage that holds the bytes."""

    LOCAL = "local"
    MEMORY = "memory"
    CLOUD = "cloud"
    HDFS = "hdfs"


@dataclass(frozen=True, slots=True)
class StoreRoot:
    """The root folder of a store.

    Attributes:
        kind: the kind of storage.
        base: for the cloud, the URL of the bucket or container; for HDFS, that of its root without
            the slash; in memory, the store's name; empty for local folders.
        folder: the folder, decoded: an absolute path for local ones, else relative to the base and
            without slashes at its ends.
    """

    kind: StoreKind
    base: str
    folder: str

    @property
    def url(self) -> str:
        """The canonical URL, encoded, without a trailing slash (but `file:///` for the root)."""
        match self.kind:
            case StoreKind.LOCAL:
                return "file://" + _encoded(self.folder)
            case StoreKind.MEMORY:
                return join_url(f"memory://{_encoded(self.base)}", self.folder)
            case StoreKind.CLOUD | StoreKind.HDFS:
                return join_url(self.base, self.folder)


def locate(location: str | os.PathLike[str]) -> StoreRoot:
    """Parse a path or URL. Touches no store.

    Local paths are literal: spaces, percent signs, `#`, quotes and `~` mean themselves. URLs have
    one of the schemes file, memory, s3 (s3a), gs (gcs), az (azure), abfss (abfs), hdfs, webhdfs and
    swebhdfs.

    Raises:
        InvalidRequest: for an invalid location.
    """
    text = os.fspath(location)
    if not text.strip() or "\0" in text:
        raise InvalidRequest(f"{text!r} names no place: give a folder or a URL")
    found = _SCHEME.match(text)
    if found is None:
        return _local(text)
    scheme, rest = found[1].lower(), found[2]
    if scheme == "file" and rest.startswith("/"):
        return _file_url(text, rest)
    if scheme == "memory":
        return _memory_url(text, rest)
    if not rest.startswith("//"):
        if rest.startswith("/") and scheme in (*_CLOUD_SCHEMES, *_HDFS_SCHEMES, *_MOUNTS):
            raise InvalidRequest(
                f"{text!r} has one slash after its scheme: give the URL with its bucket or host "
                "(s3://bucket/folder), or the path where it is mounted"
            )
        return _local(text)  # a folder with a colon in its name
    if scheme in _HDFS_SCHEMES:
        return _hdfs_url(text, scheme, rest[2:])
    if scheme not in _CLOUD_SCHEMES:
        known = ", ".join(("file", "memory", *_CLOUD_SCHEMES, *_HDFS_SCHEMES))
        raise InvalidRequest(
            f"the scheme {scheme!r} of {_without_user(text)!r} is not known: "
            f"give a folder, or a URL with one of {known}"
        )
    return _cloud_url(text, _CLOUD_SCHEMES[scheme], rest[2:])


def canonical_url(location: str | os.PathLike[str]) -> str:
    """Return the canonical URL of a path or URL, the same as `open_store(location).url`.

    Raises:
        InvalidRequest: for an invalid location.
    """
    return locate(location).url


def local_path(url: str) -> str | None:
    """Return the absolute local path, decoded, of a `file:` URL; None for any other text.

    Raises InvalidRequest for a `file:` URL of another host or without a folder.
    """
    found = _SCHEME.match(url)
    if found is None or found[1].lower() != "file" or not found[2].startswith("/"):
        return None
    return _file_url(url, found[2]).folder


def join_url(url: str, path: str) -> str:
    """Return the URL of `path` (relative, not encoded) below the folder `url` (encoded)."""
    return f"{url.removesuffix('/')}/{_encoded(path)}" if path else url


def validate_path(path: str) -> str:
    """Return `path` if it names something below a root: relative, no part empty, `.` or `..`.

    Raises:
        InvalidRequest: for any other path.
    """
    if "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        raise InvalidRequest(
            f"{path!r} is not a path below a table's or store's root: "
            "it must be relative and without empty parts, '.' and '..'"
        )
    return path


def join_path(folder: str, path: str) -> str:
    """Return `path` below `folder`, where either may be empty; not encoded."""
    return f"{folder}/{path}" if folder and path else folder or path


def _local(path: str) -> StoreRoot:
    # abspath keeps two leading slashes, which POSIX leaves undefined
    return StoreRoot(StoreKind.LOCAL, "", re.sub("^/+", "/", os.path.abspath(path)))


def _file_url(url: str, rest: str) -> StoreRoot:
    """Parse a `file:` URL, where `rest` follows the colon, into a local root. Raises InvalidRequest
    for the URL of another host, without a folder, or with NUL.
    """
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            raise InvalidRequest(
                f"{url!r} names the host {host!r}: file URLs are of this machine, file:///folder"
            )
        rest = slash + path
    path = unquote(rest, errors="surrogateescape")
    if not path:
        raise InvalidRequest(f"{url!r} names no folder: write file:///folder")
    if "\0" in path:
        raise InvalidRequest(f"{url!r} has the character NUL, which no file's name can have")
    return _local(posixpath.normpath(path))


def _memory_url(url: str, rest: str) -> StoreRoot:
    """Parse a `memory:` URL, where `rest` follows the colon. The name is `default` if the URL has
    none.

    Raises InvalidRequest if no slash follows the colon, or the folder isn't valid.
    """
    if rest and not rest.startswith("/"):
        raise InvalidRequest(
            f"{url!r} is ambiguous: write memory://{rest} for a store in memory, "
            f"./{url} for a folder of that name"
        )
    if rest.startswith("//"):
        name, _, path = rest[2:].partition("/")
    else:
        name, path = "", rest
    return StoreRoot(StoreKind.MEMORY, unquote(name) or _MEMORY_NAME, _folder(url, path))


def _cloud_url(url: str, scheme: str, rest: str) -> StoreRoot:
    """Parse a bucket's URL, where `rest` follows the slashes and `scheme` is the canonical one.

    Raises InvalidRequest if it has credentials or no bucket, or its folder isn't valid.
    """
    bucket, _, path = rest.partition("/")
    user, at, host = bucket.rpartition("@")
    if (at and scheme != "abfss") or ":" in user:
        raise InvalidRequest(
            f"{_without_user(url)!r} holds credentials: give them in storage_options instead"
        )
    if not host or (at and not user):
        raise InvalidRequest(f"{url!r} names no bucket: write {scheme}://bucket/folder")
    return StoreRoot(StoreKind.CLOUD, f"{scheme}://{bucket}", _folder(url, path))


def _hdfs_url(url: str, scheme: str, rest: str) -> StoreRoot:
    """Parse a URL in HDFS, where `rest` follows the slashes. Raises InvalidRequest if it has a user
    or no host, or its folder isn't valid.
    """
    host, _, path = rest.partition("/")
    if "@" in host:
        raise InvalidRequest(
            f"{_without_user(url)!r} names a user: give webhdfs_user in storage_options instead"
        )
    if not _HOST.fullmatch(host):
        raise InvalidRequest(f"{url!r} names no name node: write {scheme}://host:port/folder")
    return StoreRoot(StoreKind.HDFS, f"{scheme}://{host}", _folder(url, path))


def _folder(url: str, path: str) -> str:
    """Return a URL's path, decoded and without slashes at its ends; '' for the root.

    Raises InvalidRequest, which names `url` without its user, for a path that `validate_path`
    refuses.
    """
    folder = unquote(path).strip("/")
    if not folder:
        return ""
    try:
        return validate_path(folder)
    except InvalidRequest as error:
        raise InvalidRequest(f"{_without_user(url)!r} can't be used: {error}") from error


def _encoded(path: str) -> str:
    return quote(path, safe=_SAFE, errors="surrogateescape")


def _without_user(url: str) -> str:
    return re.sub(r"//[^/]*@", "//", url)
