"""Credentials that a Unity Catalog vends for a table's files, as storage options.

Caches them until shortly before they expire. None are requested if the user gives credentials.
Source: Unity Catalog's Delta API, "Credentials".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from txlake.catalog.unity.client import RequestRefused
from txlake.catalog.unity.ledger import UnityLedger
from txlake.catalog.unity.responses import Credentials
from txlake.errors import InvalidRequest
from txlake.ports import Store
from txlake.storage import local_path, open_store

_OPERATIONS = ("READ_WRITE", "READ")
_RENEWAL_LEAD_MS = 300_000
_NEVER_MS = 2**62
_OPTION_NAMES = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "azure.sas-token": "azure_storage_sas_token",
}
_CREDENTIAL_WORDS = (
    "access_key",
    "secret",
    "token",
    "account_key",
    "sas",
    "service_account",
    "skip_signature",
)


class VendedCredentials:
    """The credentials of each location, cached until shortly before they expire. Thread-safe."""

    def __init__(self, ledger: UnityLedger, options: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._options = dict(options)
        self._has_user_credentials = any(
            word in key.lower() for key in options for word in _CREDENTIAL_WORDS
        )
        self._by_table: dict[str, tuple[Mapping[str, str], int]] = {}

    def options(self, location: str) -> Mapping[str, str]:
        """Return the storage options at a location: the user's, and the vended ones.

        Raises Unavailable, and InvalidRequest if no usable credentials are vended.
        """
        if (
            self._has_user_credentials
            or local_path(location) is not None
            or location.startswith("memory:")
        ):
            return self._options
        table_id = self._ledger.table_at(location)
        if table_id is None:
            return self._options
        cached = self._by_table.get(table_id)
        if cached is None or cached[1] - _RENEWAL_LEAD_MS < self._ledger.system.now_ms():
            cached = self._request(table_id)
            self._by_table[table_id] = cached
        return {**self._options, **cached[0]}

    def store(self, location: str) -> Store:
        """Return the store at a location; it renews vended credentials that expire."""
        if self._has_user_credentials or local_path(location) is not None:
            return open_store(location, self._options)
        return cast("Store", _RenewingStore(lambda: open_store(location, self.options(location))))

    def _request(self, table_id: str) -> tuple[Mapping[str, str], int]:
        """Request credentials, READ_WRITE or else READ; return their options and when they expire,
        in milliseconds since the epoch.

        Raises InvalidRequest if the catalog vends none that can be used, Unavailable.
        """
        refusal: RequestRefused | InvalidRequest | None = None
        for operation in _OPERATIONS:  # the token may be read-only
            try:
                response = self._ledger.credentials(table_id, operation)
            except (RequestRefused, InvalidRequest) as error:
                refusal = error
                continue
            return _to_options(response)
        raise InvalidRequest(
            f"the catalog lends no credentials for table {table_id}; give storage_options: "
            f"{refusal}"
        ) from refusal


class _RenewingStore:
    """A `Store` that is opened again at each use, with options that haven't expired."""

    def __init__(self, open_: Callable[[], Store]) -> None:
        self._open = open_

    def __getattr__(self, name: str) -> object:
        return getattr(self._open(), name)


def _to_options(credentials: Credentials) -> tuple[Mapping[str, str], int]:
    """Return the storage options of the first credentials, and when they expire, in milliseconds
    since the epoch.

    Raises InvalidRequest for credentials of an unsupported cloud, and for none.
    """
    for credential in credentials.storage_credentials:
        options = {
            _OPTION_NAMES[key]: text
            for key, text in credential.config.items()
            if key in _OPTION_NAMES
        }
        if options or not credential.config:
            expires_ms = credential.expiration_time_ms
            return options, _NEVER_MS if expires_ms is None else expires_ms
        raise InvalidRequest(
            f"the catalog lends {', '.join(sorted(credential.config))}, which can't be used here; "
            "give storage_options"
        )
    raise InvalidRequest("the catalog lends no credentials; give storage_options")
