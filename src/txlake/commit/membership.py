"""Which lake's catalog a table belongs to, and the actions that attach and detach it.

Owns the table features' and the metadata domain's actions, and the refusal of commits that bypass
the catalog. There are two kinds: with `txlakeCatalog` every engine reads the table, as far as it is
published, and only the lake writes it; with `catalogManaged` the table is open, and other engines
read and write it through the lake's server. Source: docs/internals/catalog.md; PROTOCOL.md, "Table
Features", "Domain Metadata", "Catalog-managed tables".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from txlake.errors import CorruptTable, InvalidRequest, UnsupportedFeature
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Protocol
from txlake.protocol.features import (
    CATALOG_FEATURE,
    CATALOG_MANAGED,
    MULTI_TABLE,
    is_required_by_others,
    protocol_for,
    protocol_without,
    supported_features,
)

DOMAIN = "txlake.catalog"
"""The metadata domain that holds a Membership.

Also a property with the same text, of a table that another engine made: the first commit of one
can't be asked for a domain, and can for properties.
"""

TABLE_ID = "io.unitycatalog.tableId"
"""The property by which clients of a Unity Catalog check that it is the table they mean."""

OPEN_PROPERTIES = {
    "delta.checkpoint.writeStatsAsJson": "true",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpointPolicy": "v2",
    "delta.enableDeletionVectors": "true",
    "delta.enableInCommitTimestamps": "true",
}
"""What an open table's properties say besides, as clients of a Unity Catalog expect it."""

ATTACH = "ATTACH"
"""The operation, in a table's history, of the commit that makes it a catalog's."""

DETACH = "DETACH"
"""The operation of the commit that gives it up."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The lake that a table belongs to.

    `lake` and `table` are ids, `name` is the table's name when it was attached.
    """

    lake: str
    table: str
    name: str


def is_catalog_managed(protocol: Protocol) -> bool:
    """Return whether a catalog ratifies the versions of a table with this protocol."""
    return not {CATALOG_FEATURE, CATALOG_MANAGED}.isdisjoint(supported_features(protocol))


def is_open(protocol: Protocol) -> bool:
    """Return whether other engines write the table too, through its catalog."""
    return CATALOG_MANAGED in supported_features(protocol)


def membership_of(snapshot: Snapshot) -> Membership | None:
    """Return the table's lake; None without a catalog, or with another system's catalog.

    Raises CorruptTable if it has the table feature, but not the complete membership.
    """
    if not is_catalog_managed(snapshot.protocol):
        return None
    domain = snapshot.domains.get(DOMAIN)
    text = snapshot.metadata.configuration.get(DOMAIN) if domain is None else domain.configuration
    if text is None and is_open(snapshot.protocol):
        return None
    try:
        found = json.loads(text or "")
        return Membership(lake=found["lake"], table=found["table"], name=found["name"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(
            f"{snapshot.table} at version {snapshot.version}: it has the table feature "
            f"{CATALOG_FEATURE}; expected lake, table and name in the metadata domain {DOMAIN}, "
            f"found {text!r:.200}"
        ) from error


def membership_text(membership: Membership) -> str:
    """Return the value of the domain, or of the property of its name."""
    return json.dumps(
        {"lake": membership.lake, "table": membership.table, "name": membership.name},
        separators=(",", ":"),
        ensure_ascii=False,
    )


def membership_domain(membership: Membership) -> DomainMetadata:
    """Return the action that records the table's lake."""
    text = membership_text(membership)
    return DomainMetadata(domain=DOMAIN, configuration=text, removed=False)


def attach_actions(
    membership: Membership,
    snapshot: Snapshot,
    metadata: Metadata | None = None,
    *,
    opens: bool = False,
) -> tuple[Action, ...]:
    """Return the actions that attach a table to a catalog: the protocol, if it changes, and the
    domain.

    `metadata` is what the same commit sets, for a table that it creates or replaces. `opens`: other
    engines may write the table too, which sets properties as well; an open table stays open.
    """
    existing = snapshot.protocol if snapshot.has_protocol else None
    if opens or (existing is not None and is_open(existing)):
        return _opening(membership, metadata or snapshot.metadata, existing)
    protocol = protocol_for(metadata or snapshot.metadata, existing, features=(CATALOG_FEATURE,))
    domain = membership_domain(membership)
    return (domain,) if protocol == existing else (protocol, domain)


def _opening(
    membership: Membership, metadata: Metadata, existing: Protocol | None
) -> tuple[Action, ...]:
    """Return the actions that make a table open: protocol and metadata if they change, and the
    domain.
    """
    own = {**OPEN_PROPERTIES, TABLE_ID: membership.table}
    changed = msgspec.structs.replace(metadata, configuration={**metadata.configuration, **own})
    left = None if existing is None else protocol_without([CATALOG_FEATURE], existing)
    if existing is not None and CATALOG_FEATURE not in supported_features(existing):
        left = existing
    protocol = protocol_for(changed, left, features=(CATALOG_MANAGED,))
    actions: list[Action] = []
    if protocol != existing:
        actions.append(protocol)
    if changed.configuration != metadata.configuration:
        actions.append(changed)
    return (*actions, membership_domain(membership))


def required_actions(
    snapshot: Snapshot, features: Collection[str], properties: Mapping[str, str]
) -> tuple[Action, ...]:
    """Return the protocol and metadata with what another system's catalog requires."""
    metadata = snapshot.metadata
    changed = msgspec.structs.replace(
        metadata, configuration={**metadata.configuration, **properties}
    )
    existing = snapshot.protocol if snapshot.has_protocol else None
    return (protocol_for(changed, existing, features=tuple(sorted(features))), changed)


def retained_properties(snapshot: Snapshot) -> dict[str, str]:
    """Return an open table's properties that no statement changes; none for other tables."""
    if not is_open(snapshot.protocol):
        return {}
    names = (*OPEN_PROPERTIES, TABLE_ID, DOMAIN)
    configuration = snapshot.metadata.configuration
    return {name: configuration[name] for name in names if name in configuration}


def detach_actions(snapshot: Snapshot) -> tuple[Action, ...]:
    """Return the actions that detach a table, for a commit of operation DETACH.

    What the catalog needed is removed unless something else uses it: `domainMetadata`, the
    protocol's versions, and of an open table the properties that name the catalog. Empty for a
    table without a catalog.
    """
    if not is_catalog_managed(snapshot.protocol):
        return ()
    removed = [CATALOG_FEATURE, CATALOG_MANAGED, *MULTI_TABLE]
    left = protocol_without(removed, snapshot.protocol)
    others = snapshot.domains.keys() - {DOMAIN}
    if not others and not is_required_by_others("domainMetadata", left):
        removed.append("domainMetadata")
    actions: list[Action] = [protocol_without(removed, snapshot.protocol)]
    configuration = snapshot.metadata.configuration
    kept = {key: text for key, text in configuration.items() if key not in (TABLE_ID, DOMAIN)}
    if kept != configuration:
        actions.append(msgspec.structs.replace(snapshot.metadata, configuration=kept))
    domain = snapshot.domains.get(DOMAIN)
    if domain is not None:
        text = domain.configuration
        actions.append(DomainMetadata(domain=DOMAIN, configuration=text, removed=True))
    return tuple(actions)


def catalog_required_error(snapshot: Snapshot) -> UnsupportedFeature:
    """Return the error for an open table that is read by its path, without its catalog.

    Source: PROTOCOL.md, "Reader Requirements for Catalog-managed tables".
    """
    own = membership_of(snapshot)
    where = "its catalog" if own is None else f"lake {own.lake}"
    name = "the name that it has there" if own is None else f"its name there, {own.name}"
    return UnsupportedFeature(
        f"{snapshot.table}: {where} makes its versions, and its log alone may lack the newest (the "
        f"table feature {CATALOG_MANAGED}); use {name}"
    )


def bypass_error(table: str, version: int, domains: Sequence[DomainMetadata]) -> InvalidRequest:
    """Return the error for a commit that bypasses a table's catalog.

    `domains` are the table's known domains, which name the lake.
    """
    text = next((one.configuration for one in domains if one.domain == DOMAIN), None)
    try:
        found = json.loads(text or "")
        whose = f"of lake {found['lake']}, where its name is {found['name']}"
        advice = f"Use the name {found['name']} in that lake"
    except (ValueError, KeyError, TypeError):
        whose = f"of a lake that its metadata domain {DOMAIN} doesn't name"
        advice = "Use its name in that lake"
    return InvalidRequest(
        f"{table}: version {version} belongs to the catalog {whose}: it has the table feature "
        f"{CATALOG_FEATURE} or {CATALOG_MANAGED}, and a commit has to go through that catalog. "
        f"{advice}, or detach the table there first; reading needs neither"
    )
