"""What is published about the same anomalies in other systems, each with its source.

"tested" is Hermitage's own results, by hand on the release named there. "documented" is what the
vendor says of the anomaly, or of a rule that decides it. "derived" is what the definition of a
documented level implies. Nothing here was run by us.
"""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = ("G0", "G1a", "G1b", "G1c", "OTV", "PMP", "P4", "G-single", "G2-item", "G2")

# Hermitage's signs.
YES, NO, SOME = "✓", "—", "some"


@dataclass(frozen=True, slots=True)
class Source:
    """Where it stands."""

    title: str
    publisher: str


HERMITAGE = Source(
    "Hermitage: Testing transaction isolation levels (PostgreSQL 9.3.5, SQL Server 11.00.2100)",
    "Martin Kleppmann, github.com/ept/hermitage",
)
FABRIC = Source("Transactions in Fabric Data Warehouse", "Microsoft Learn")
FABRIC_CONFLICTS = Source(
    "Resolving Write Conflicts in Microsoft Fabric Data Warehouse", "Microsoft Fabric Blog"
)
REDSHIFT = Source(
    "Isolation levels in Amazon Redshift (Database Developer Guide)", "Amazon Web Services"
)
REDSHIFT_ERROR = Source(
    "Troubleshooting serializable isolation errors (Database Developer Guide)",
    "Amazon Web Services",
)
DATABRICKS = Source(
    "Transaction Support (Databricks SQL Connector for Python, TRANSACTIONS.md)",
    "Databricks, github.com/databricks/databricks-sql-python",
)


@dataclass(frozen=True, slots=True)
class Published:
    """One level of one system."""

    system: str
    level: str
    marks: tuple[str, ...]
    """One of the signs for each of COLUMNS."""
    basis: str
    sources: tuple[Source, ...]


def _marks(prevented: int, *rest: str) -> tuple[str, ...]:
    return (YES,) * prevented + rest


_SI = _marks(8, NO, NO)
_ALL = _marks(10)

PUBLISHED: tuple[Published, ...] = (
    Published("PostgreSQL", "read committed", _marks(5, *(NO,) * 5), "tested", (HERMITAGE,)),
    Published("PostgreSQL", "repeatable read", _SI, "tested", (HERMITAGE,)),
    Published("PostgreSQL", "serializable", _ALL, "tested", (HERMITAGE,)),
    Published("SQL Server", "read uncommitted", _marks(1, *(NO,) * 9), "tested", (HERMITAGE,)),
    Published(
        "SQL Server",
        "read committed, locking or snapshot",
        _marks(5, *(NO,) * 5),
        "tested",
        (HERMITAGE,),
    ),
    Published(
        "SQL Server",
        "repeatable read",
        _marks(5, NO, YES, SOME, YES, NO),
        "tested",
        (HERMITAGE,),
    ),
    Published("SQL Server", "snapshot", _SI, "tested", (HERMITAGE,)),
    Published("SQL Server", "serializable", _ALL, "tested", (HERMITAGE,)),
    Published(
        "Fabric Data Warehouse",
        "snapshot",
        _marks(8, SOME, NO),
        "derived; that it is the only level, with conflicts per table, is documented",
        (FABRIC, FABRIC_CONFLICTS),
    ),
    Published(
        "Redshift",
        "SNAPSHOT",
        _SI,
        "derived; G1a, PMP, G-single (for reads) and G2 documented",
        (REDSHIFT, REDSHIFT_ERROR),
    ),
    Published(
        "Redshift",
        "SERIALIZABLE",
        _ALL,
        "derived; G1a, PMP, G-single (for reads) and G2 documented",
        (REDSHIFT, REDSHIFT_ERROR),
    ),
    Published(
        "Databricks",
        "transactions: repeatable read",
        _marks(8, SOME, SOME),
        "derived; that it is snapshot isolation, with conflicts per table, is documented",
        (DATABRICKS,),
    ),
)
