"""The store in a bucket, or in memory, by obstore.

Owns the difference between a refusal and a lost reply: a put-if-absent is sent once and never
repeated by the library, since the repetition of a successful one would be refused because of its
own object. Also owns the check that an object exists which a store reports as created.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from txlake.azure import account_options
from txlake.errors import InvalidRequest
from txlake.ports import PutOutcome, StoredObject
from txlake.redaction import secrets_of
from txlake.storage.locations import StoreKind, StoreRoot, join_path, join_url, validate_path
from txlake.storage.options import RETRIES, is_of_hdfs, retries_of
from txlake.storage.proof import Proof
from txlake.storage.store_errors import (
    LIBRARY_ERRORS,
    RequestOutcome,
    http_status,
    is_missing_object,
    reason_of,
    request_outcome,
    translate_error,
    without_credentials,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import AzureConfig, GCSConfig, ObjectStore, RetryConfig, S3Config

T = TypeVar("T")

_log = logging.getLogger(__name__)

_DELETE_BATCH = 1000
_AZURE = ("az:", "abfss:")
# The end of the name of a bucket of S3 Express, which lists in no order.
_DIRECTORY_BUCKET = "--x-s3"


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """One bucket, container or memory store, with its options; shared by all stores in it.

    Attributes:
        patient: the client that repeats failed requests where that is harmless.
        once: the client that sends each request once.
        secrets: texts that no message may show.
        proof: the self-test of put-if-absent, done once for the backend.
        lists_in_order: whether the pages of a list follow each other in the order of the keys.
    """

    patient: ObjectStore = field(repr=False)
    once: ObjectStore = field(repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    proof: Proof = field(default_factory=Proof)
    lists_in_order: bool = False


@functools.cache
def memory_backend(name: str) -> Backend:
    """Return the store in memory of this name: one for the process, empty at the first call."""
    memory = MemoryStore()
    return Backend(memory, memory, lists_in_order=True)


def cloud_backend(base: str, storage_options: Mapping[str, str]) -> Backend:
    """Return the bucket or container at the URL `base`. Sends nothing.

    `storage_options` are obstore's, for the store and for its HTTP client (`aws_access_key_id`,
    `endpoint`, `allow_http`, `timeout`, ...; letter case doesn't matter), and `max_retries`: how
    often a failed read or plain write is repeated. Options of HDFS are ignored.

    Raises:
        InvalidRequest: an option is not known, or its value can't be used.
    """
    own = ((name, value) for name, value in storage_options.items() if not is_of_hdfs(name))
    return _cloud_backend(base, tuple(sorted(own)))


class BucketStore:
    """`ports.Store` on a folder of a `Backend`. Safe to use from many threads; not after a fork."""

    __slots__ = ("_backend", "_folder", "_place", "_url")

    def __init__(self, place: StoreRoot, backend: Backend) -> None:
        self._place = place
        self._folder = place.folder
        self._url = place.url
        self._backend = backend

    @property
    def url(self) -> str:
        return self._url

    @property
    def excludes_late_writes(self) -> bool:
        return self._place.kind is StoreKind.MEMORY

    def get(self, path: str) -> bytes:
        """Return the object's bytes. Raises FileNotFoundError."""
        key = self._key(path)
        return self._call(
            "read", path, lambda: obstore.get(self._backend.patient, key).bytes().to_bytes()
        )

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`, fewer at the object's end. Raises FileNotFoundError,
        except for a length of 0.
        """
        key = self._key(path)
        if length <= 0:
            return b""

        def work() -> bytes:
            try:
                part = obstore.get_range(self._backend.patient, key, start=offset, length=length)
            except GenericError as error:
                if http_status(error) == 416 or "StartTooLarge" in str(error):
                    return b""  # beyond the end, as when reading a file
                raise
            return part.to_bytes()

        return self._call("read", path, work)

    def head(self, path: str) -> StoredObject | None:
        """Return the object's size and time, or None when it doesn't exist."""
        key = self._key(path)
        try:
            found = self._call("read", path, lambda: obstore.head(self._backend.patient, key))
        except FileNotFoundError:
            return None
        return StoredObject(path, found["size"], _modified_ms(found))

    def list(
        self, prefix: str, start_after: str | None = None, before: str | None = None
    ) -> Iterator[StoredObject]:
        """Yield the objects below the folder `prefix` by path, page by page; in a store that
        doesn't list in this order, after all pages were read.
        """
        path = prefix.rstrip("/")
        folder = self._key(path) if path else self._folder
        after = join_path(self._folder, start_after) if start_after else None
        pages = self._call(
            "list",
            path,
            lambda: iter(obstore.list(self._backend.patient, prefix=folder or None, offset=after)),
        )
        found = self._pages(path, pages)
        if not self._backend.lists_in_order:
            found = iter([[each for page in found for each in page]])
        begin = len(self._folder) + 1 if self._folder else 0
        # obstore takes the slash off an offset that ends with one.
        for page in found:
            for each in sorted(page, key=lambda each: each["path"]):
                key = each["path"]
                if before is not None and key[begin:] >= before:
                    return
                if key != folder and (start_after is None or key[begin:] > start_after):
                    yield StoredObject(key[begin:], each["size"], _modified_ms(each))

    def _pages(
        self, path: str, pages: Iterator[Sequence[ObjectMeta]]
    ) -> Iterator[Sequence[ObjectMeta]]:
        """Yield the pages of a list, each requested when it is taken."""
        while (page := self._call("list", path, lambda: next(pages, None))) is not None:
            yield page

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        self._call("write", path, lambda: obstore.put(self._backend.patient, key, data))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        """Create the object unless it exists, by one request that is never repeated.

        Returns CREATED only after the object was seen with these bytes. UNKNOWN: the reply was
        lost, or that check found something else.
        """
        key = self._key(path)

        def work() -> PutOutcome:
            try:
                made = obstore.put(
                    self._backend.once, key, data, mode="create", use_multipart=False
                )
            except AlreadyExistsError as error:
                # S3's 409 means that requests collided, not that one of them succeeded.
                if http_status(error) == 409 and self.head(path) is None:
                    return PutOutcome.UNKNOWN
                return PutOutcome.EXISTS
            except LIBRARY_ERRORS as error:
                if request_outcome(error) is RequestOutcome.LOST:
                    secrets = self._backend.secrets
                    _log.info("a put was not answered clearly: %s", reason_of(error, secrets))
                    return PutOutcome.UNKNOWN
                raise
            # Not every 200 comes from the store itself, and a missing commit would be lost.
            is_there = _is_digest(made["e_tag"], data) or self._holds(key, data, made["e_tag"])
            return PutOutcome.CREATED if is_there else PutOutcome.UNKNOWN

        return self._call("write", path, work)

    def put_unsynced(self, path: str, data: bytes) -> None:
        """Create the object unless it exists, repeating failed requests."""
        key = self._key(path)

        def work() -> None:
            with suppress(AlreadyExistsError):
                obstore.put(self._backend.patient, key, data, mode="create", use_multipart=False)

        self._call("write", path, work)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete the objects, 1,000 in one request where the store can; a missing one is no
        error.
        """
        rest = iter(paths)
        while batch := list(islice(rest, _DELETE_BATCH)):
            try:
                self._delete(batch)
            except FileNotFoundError:
                for path in batch:  # stores without bulk deletion stop at a missing object
                    with suppress(FileNotFoundError):
                        self._delete([path])

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Do nothing: a bucket shows an object whole or not at all."""

    def ensure_safe(self) -> None:
        self._backend.proof.ensure(self)

    def at(self, path: str) -> BucketStore:
        """Return the store of the folder `path`, or of this one for ''; both share the clients."""
        below = path.rstrip("/")
        folder = self._key(below) if below else self._folder
        return BucketStore(StoreRoot(self._place.kind, self._place.base, folder), self._backend)

    def __repr__(self) -> str:
        return f"BucketStore({self._url!r})"

    def _key(self, path: str) -> str:
        """Return the object's key in the bucket. Raises InvalidRequest for a path that isn't below
        the root, and on Azure for one with a backslash.
        """
        key = join_path(self._folder, validate_path(path))
        if "\\" in key and self._place.base.startswith(_AZURE):
            raise InvalidRequest(
                f"{join_url(self._url, path)} can't be used: Azure takes a backslash for a slash; "
                "use a name without one"
            )
        return key

    def _holds(self, key: str, data: bytes, e_tag: str | None) -> bool:
        """Return whether the object exists with these bytes; False when that can't be
        determined.
        """
        patient = self._backend.patient
        try:
            if e_tag is not None and obstore.head(patient, key)["e_tag"] == e_tag:
                return True
            return obstore.get(patient, key).bytes().to_bytes() == data
        except LIBRARY_ERRORS:
            return False

    def _delete(self, paths: Sequence[str]) -> None:
        keys = [self._key(path) for path in paths]
        self._call("delete", paths[0], lambda: obstore.delete(self._backend.patient, keys))

    def _call(self, action: str, path: str, work: Callable[[], T]) -> T:
        """Return the result of `work`, which calls obstore, and translate its errors without
        credentials.

        Raises:
            FileNotFoundError: the object is missing, for the actions 'read' and 'delete'.
            InvalidRequest: the store refused.
            Unavailable: the request may have failed for a while only.
        """
        try:
            return work()
        except LIBRARY_ERRORS as error:
            failure = error
        # Raised outside of `except`: the original text with its credentials must be no __context__.
        cause = without_credentials(failure, self._backend.secrets)
        url = join_url(self._url, path)
        if is_missing_object(failure) and action in {"read", "delete"}:
            raise FileNotFoundError(errno.ENOENT, "no such object", url) from cause
        raise translate_error(failure, action, url, self._backend.secrets) from cause


def _is_digest(e_tag: str | None, data: bytes) -> bool:
    """Return whether an ETag is the MD5 digest of the data, which only a store that has received
    the data can return.

    S3's is, unless the bucket is encrypted with keys of KMS. Other stores' are opaque.
    """
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return e_tag is not None and e_tag.strip('"') == digest


@functools.lru_cache(maxsize=64)
def _cloud_backend(base: str, storage_options: tuple[tuple[str, str], ...]) -> Backend:
    """Make the clients of the bucket at `base`. Calls with equal options share one result.

    Raises InvalidRequest if an option isn't known or its value can't be used.
    """
    options = {name: str(value) for name, value in storage_options}
    secrets = secrets_of(options)
    retries = retries_of(options)
    options.pop(RETRIES, None)
    try:
        return Backend(
            _client(base, options, retries),
            _client(base, options, 0),
            secrets=secrets,
            lists_in_order=not base.endswith(_DIRECTORY_BUCKET),
        )
    except LIBRARY_ERRORS as error:
        failure = error
    raise InvalidRequest(
        f"can't open {base}: {reason_of(failure, secrets)}; correct storage_options"
    ) from without_credentials(failure, secrets)


def _client(base: str, options: dict[str, str], retries: int) -> ObjectStore:
    """Make obstore's client of a bucket, which repeats failed requests `retries` times within 60
    seconds. Raises obstore's errors.
    """
    retry: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=60),
        "backoff": {"max_backoff": timedelta(seconds=5)},
    }
    scheme, _, bucket = base.partition("://")
    # The constructors take the HTTP client's options among the others; `from_url` panics on them.
    match scheme:
        case "s3":
            return S3Store(bucket, config=cast("S3Config", options), retry_config=retry)
        case "gs":
            return GCSStore(bucket, config=cast("GCSConfig", options), retry_config=retry)
        case _:
            container, _, host = bucket.partition("@")
            config = cast("AzureConfig", account_options(host) | options)
            return AzureStore(container, config=config, retry_config=retry)


def _modified_ms(found: ObjectMeta) -> int:
    return int(found["last_modified"].timestamp() * 1000)
