"""The catalog's relations, as SQLAlchemy Core tables.

Names are unique by their folded form, as Spark SQL compares them, and kept as they were written.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = 2

metadata = MetaData()

versions = Table("txlake_schema", metadata, Column("version", Integer, nullable=False))

databases = Table(
    "txlake_databases",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("folded_name", String(255), nullable=False, unique=True),
    Column("name", String(255), nullable=False),
    Column("comment", Text),
    Column("isolation", String(32)),
    Column("properties", Text),  # JSON
    Column("created_ms", BigInteger, nullable=False),
)

tables = Table(
    "txlake_tables",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("database_id", String(36), ForeignKey("txlake_databases.id"), nullable=False),
    Column("folded_name", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("location", Text, nullable=False),
    Column("managed", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("database_id", "folded_name"),
)

# What makes a catalog of one version one of the next.
UPGRADES = {1: "ALTER TABLE txlake_databases ADD COLUMN properties TEXT"}
