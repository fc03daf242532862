"""Facts about the lake, named texts in `txlake_facts`, read and written in the caller's
transaction.

The caller locks the sequence before it writes.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from txlake.catalog.relations import facts

_FACT = sa.select(facts.c.value).where(facts.c.name == sa.bindparam("named"))


def fact(connection: Connection, name: str) -> str | None:
    """Return the text of that name; None if there is none."""
    value: str | None = connection.scalar(_FACT, {"named": name})
    return value


def facts_named(connection: Connection, prefix: str) -> dict[str, str]:
    """Return the texts whose names begin with a prefix, by the rest of their names."""
    query = sa.select(facts.c.name, facts.c.value).where(
        facts.c.name.startswith(prefix, autoescape=True)
    )
    return {name[len(prefix) :]: value for name, value in connection.execute(query)}


def set_fact(connection: Connection, name: str, value: str) -> None:
    """Insert or replace the text of that name."""
    changed = connection.execute(sa.update(facts).where(facts.c.name == name).values(value=value))
    if changed.rowcount == 0:
        connection.execute(sa.insert(facts).values(name=name, value=value))


def remove_fact(connection: Connection, name: str) -> None:
    """Remove the text of that name, if there is one."""
    connection.execute(sa.delete(facts).where(facts.c.name == name))
