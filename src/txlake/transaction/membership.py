"""Which lake's catalog a table belongs to: how the table says so, and how that comes and goes.

Owns the table feature's and the metadata domain's actions, and the refusal of commits that would
go past the catalog. A table that belongs to a catalog is read by anyone, as far as it is published.
Source: DESIGN section 5; PROTOCOL.md, "Table Features", "Domain Metadata".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from txlake.errors import CorruptTable, InvalidRequest
from txlake.log.snapshot import Snapshot
from txlake.protocol.actions import Action, DomainMetadata, Metadata, Protocol
from txlake.protocol.features import (
    CATALOG_FEATURE,
    needed_by_others,
    protocol_for,
    protocol_without,
    supported_features,
)

DOMAIN = "txlake.catalog"
"""The metadata domain that holds a Belonging."""

ATTACH = "ATTACH"
"""The operation, in a table's history, of the commit that makes it a catalog's."""

DETACH = "DETACH"
"""The operation of the commit that gives it up."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Whose a table is. `lake` and `table` are ids, `name` the one that it had when it came."""

    lake: str
    table: str
    name: str


def is_catalog_managed(protocol: Protocol) -> bool:
    """Whether a catalog makes the versions of a table with this protocol."""
    return CATALOG_FEATURE in supported_features(protocol)


def membership_of(snapshot: Snapshot) -> Membership | None:
    """Whose the table is; None for one that no catalog holds.

    Raises CorruptTable when it has the table feature, and not, or not wholly, who it is for.
    """
    if not is_catalog_managed(snapshot.protocol):
        return None
    domain = snapshot.domains.get(DOMAIN)
    try:
        found = json.loads("" if domain is None else domain.configuration)
        return Membership(lake=found["lake"], table=found["table"], name=found["name"])
    except (ValueError, KeyError, TypeError) as error:
        text = None if domain is None else domain.configuration
        raise CorruptTable(
            f"{snapshot.table} at version {snapshot.version}: it has the table feature "
            f"{CATALOG_FEATURE}; expected lake, table and name in the metadata domain {DOMAIN}, "
            f"found {text!r:.200}"
        ) from error


def membership_domain(membership: Membership) -> DomainMetadata:
    """The action that says whose a table is."""
    text = json.dumps(
        {"lake": membership.lake, "table": membership.table, "name": membership.name},
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return DomainMetadata(domain=DOMAIN, configuration=text, removed=False)


def attaching(
    membership: Membership, snapshot: Snapshot, metadata: Metadata | None = None
) -> tuple[Action, ...]:
    """The actions that make a table a catalog's: a protocol and the domain.

    `metadata` is what the same commit sets, for a table that it creates or replaces.
    """
    existing = snapshot.protocol if snapshot.has_protocol else None
    protocol = protocol_for(metadata or snapshot.metadata, existing, features=(CATALOG_FEATURE,))
    domain = membership_domain(membership)
    return (domain,) if protocol == existing else (protocol, domain)


def detaching(snapshot: Snapshot) -> tuple[Action, ...]:
    """The actions that make a table a plain one again, for a commit of operation DETACH.

    What came with the catalog goes with it where nothing else uses it: `domainMetadata`, and the
    protocol's versions. Nothing for a table that no catalog holds.
    """
    if not is_catalog_managed(snapshot.protocol):
        return ()
    removed = [CATALOG_FEATURE]
    left = protocol_without(removed, snapshot.protocol)
    others = snapshot.domains.keys() - {DOMAIN}
    if not others and not needed_by_others("domainMetadata", left):
        removed.append("domainMetadata")
    protocol = protocol_without(removed, snapshot.protocol)
    domain = snapshot.domains.get(DOMAIN)
    if domain is None:
        return (protocol,)
    gone = DomainMetadata(domain=DOMAIN, configuration=domain.configuration, removed=True)
    return (protocol, gone)


def refusal(table: str, version: int, domains: Sequence[DomainMetadata]) -> InvalidRequest:
    """The error for a commit that goes past the catalog of a table.

    `domains` are those that are known of it, for whose the table is.
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
        f"{CATALOG_FEATURE}, and a commit has to go through that catalog. {advice}, or detach the "
        "table there first; reading needs neither"
    )
