"""Transactions told to OpenLineage: which tables and versions each read and wrote.

| module | owns |
| --- | --- |
| `facts` | what is known of a transaction at its end |
| `events` | the facts as events and facets of OpenLineage; imports its client |
| `datasets` | the names of tables as datasets |
| `writes` | what a statement's texts say of the columns that it writes |
| `columns` | which columns of tables a query's columns are made of |
| `emitter` | a bounded queue, and the thread that sends the events |
"""

from __future__ import annotations

from txlake.session.lineage.datasets import dataset_of
from txlake.session.lineage.emitter import emitter_of, require_client
from txlake.session.lineage.facts import TableFacts, TransactionFacts, facts_of
from txlake.session.lineage.writes import WRITES_MAX, Reading, reading_of

__all__ = [
    "WRITES_MAX",
    "Reading",
    "TableFacts",
    "TransactionFacts",
    "dataset_of",
    "emitter_of",
    "facts_of",
    "reading_of",
    "require_client",
]
