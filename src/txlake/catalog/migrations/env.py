"""The script that Alembic runs to upgrade a catalog, on the connection of its configuration.

Its caller began the transaction and ends it.
"""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table=context.config.attributes["version_table"],
)
context.run_migrations()
