"""Transactions told to OpenLineage: which tables and versions each read and wrote.

| module | owns |
| --- | --- |
| `facts` | what is known of a transaction at its end |
| `events` | the facts as events and facets of OpenLineage; imports its client |
| `emitter` | a bounded queue, and the thread that sends the events |
"""

from __future__ import annotations

from txlake.session.lineage.emitter import emitter_of, require_client
from txlake.session.lineage.facts import TableFacts, TransactionFacts, dataset_of, facts_of

__all__ = [
    "TableFacts",
    "TransactionFacts",
    "dataset_of",
    "emitter_of",
    "facts_of",
    "require_client",
]
