"""The catalog's relations, as SQLAlchemy Core tables.

Names are stored as they were written, and are unique in lower case, as Spark SQL compares them.
Times are milliseconds since the epoch by the database's clock; leases have a clock of their own
(`Database.lease_now`). `migrations` has the steps that create these relations: a change here needs
a step there, and the next `REVISION`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

REVISION = "0011"

metadata = MetaData()

# Facts about the lake, as texts: `lake`, its id, and `epoch`, which each recovery raises (1 if
# absent), both also in the warehouse's marker; `recovering`, while a recovery is under way;
# `moved`, where the lake's catalog was moved to; `cleared:...`, a dropped table's location, which
# no other table may have; `removed:...`, when the last table of a name was dropped whose retention
# has ended; `shared:...`, the places that a shallow clone reads.
facts = Table(
    "txlake_facts",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", Text, nullable=False),
)

# The newest number given out: `sequence` (instants of the lake), `object` (databases, tables,
# views), `session`, `transaction`, `lock`; and `floor`, the oldest instant that isn't pruned. A
# transaction that ratifies or changes a name locks the row `sequence` first.
counters = Table(
    "txlake_counters",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# Branches and tags of the lake, each with databases, tables and views of its own.
branches = Table(
    "txlake_branches",
    metadata,
    # Its id names its folders in the tables' logs; `number` marks its rows in other relations.
    Column("id", String(36), primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("folded_name", String(255), nullable=False, unique=True),
    Column("name", String(255), nullable=False),
    # The number of the branch that it was made from, 0 for main, and the instant that it began at.
    Column("parent", BigInteger, nullable=False),
    Column("fork_sequence", BigInteger, nullable=False),
    Column("user_name", String(255)),
    Column("created_ms", BigInteger, nullable=False),
    # When it may be dropped; NULL: it is kept until somebody drops it.
    Column("kept_until_ms", BigInteger),
    # A tag is a branch that nobody writes.
    Column("is_tag", Boolean, nullable=False, server_default=false()),
)

# A branch's databases, tables and views have its number as `branch`; main's have 0.
databases = Table(
    "txlake_databases",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    # In lower case; on a branch after its number (`names.database_key`).
    Column("folded_name", String(255), nullable=False, unique=True),
    Column("name", String(255), nullable=False),
    Column("comment", Text),
    Column("isolation", String(32)),
    Column("properties", Text),  # JSON
    Column("created_ms", BigInteger, nullable=False),
    Column("branch", BigInteger, nullable=False, server_default=text("0")),
)

# A dropped table's row stays while the table is retained, until its last commits are published and
# its folder is removed. It may outlive its database.
tables = Table(
    "txlake_tables",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("database_id", String(36), ForeignKey("txlake_databases.id")),
    Column("folded_name", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("location", Text, nullable=False),
    Column("managed", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    # The newest ratified and the newest published version. No head: a name without a table.
    Column("head", BigInteger),
    Column("published", BigInteger, nullable=False, server_default=text("-1")),
    Column("dropped_sequence", BigInteger),
    # For a retained table: when it was dropped, when its retention ends, and its database's folded
    # name. NULL in `kept_until_ms`: the table isn't dropped, or its folder is to be removed.
    Column("dropped_ms", BigInteger),
    Column("kept_until_ms", BigInteger),
    Column("dropped_from", String(255)),
    # The table's folder holds the note that it was dropped.
    Column("is_told", Boolean, nullable=False, server_default=false()),
    Column("branch", BigInteger, nullable=False, server_default=text("0")),
    # Of a table that a branch began with: the table that it was made from, and JSON of the branches
    # on the way from main, each with its id and the version that the table had when it began.
    Column("origin_id", String(36)),
    Column("root_id", String(36)),  # the first table on that way
    Column("chain", Text),
    Index(
        "txlake_tables_name",
        "database_id",
        "folded_name",
        unique=True,
        sqlite_where=text("dropped_sequence IS NULL"),
        postgresql_where=text("dropped_sequence IS NULL"),
    ),
)

# The value up to which an identity column's values are reserved. The digest identifies the column
# (`commit.identities`). Rows are removed with their table's row.
identities = Table(
    "txlake_identities",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("column_digest", String(64), primary_key=True),
    Column("mark", BigInteger, nullable=False),
)

# What each commit on a branch read of a table, until the branch ends (`conflict.read_set_codec`).
branch_reads = Table(
    "txlake_branch_reads",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("record", Text, nullable=False),
    Column("level", String(32), nullable=False),
)

# Views and tables of a database share one space of names.
views = Table(
    "txlake_views",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("database_id", String(36), ForeignKey("txlake_databases.id"), nullable=False),
    Column("folded_name", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("query", Text, nullable=False),
    Column("columns", Text, nullable=False),  # JSON: names and comments
    Column("comment", Text),
    Column("properties", Text, nullable=False),  # JSON
    Column("created_ms", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    UniqueConstraint("database_id", "folded_name"),
)

# Ratified versions; `content` has a commit's bytes until it is published.
commits = Table(
    "txlake_commits",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("sequence", BigInteger, nullable=False, index=True),
    Column("transaction_id", String(36), nullable=False, index=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("operation", String(64)),
    Column("content", LargeBinary),
    Column("staged", Text),
)

# Transactions that were ratified without a commit, which changed names only: if the reply is lost,
# the row shows the outcome.
bare = Table(
    "txlake_bare_ratifications",
    metadata,
    Column("transaction_id", String(36), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("time_ms", BigInteger, nullable=False),
)

sessions = Table(
    "txlake_sessions",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("user_name", String(255)),
    Column("begin_ms", BigInteger, nullable=False),
    # When the lease ends, by the clock of leases (`Database.lease_now`), and how long a lease is.
    Column("lease_ms", BigInteger, nullable=False),
    Column("length_ms", BigInteger, nullable=False, server_default=text("30000")),
    # The lease had expired and was extended one last time.
    Column("warned", Boolean, nullable=False, server_default=false()),
    # In a catalog in a store: the process's heartbeat object, whose age decides in place of
    # `lease_ms`.
    Column("holder", String(36)),
)

# Open transactions only.
transactions = Table(
    "txlake_transactions",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
    Column("session_id", BigInteger, ForeignKey("txlake_sessions.id"), nullable=False),
    Column("name", String(255)),
    Column("begin_ms", BigInteger, nullable=False),
    Column("isolation", String(32)),
    Column("read_only", Boolean, nullable=False),
    Column("explicit", Boolean, nullable=False),
    Column("state", String(16), nullable=False),  # active, failed, killed
    # The newest instant when the transaction began, and the instant that it reads.
    Column("begin_sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("sequence", BigInteger),
    # How many attempts to commit lost to another transaction's commit.
    Column("lost_attempts", BigInteger, nullable=False, server_default=text("0")),
)

# Granted and awaited locks; ids are in the order of the requests.
locks = Table(
    "txlake_locks",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("session_id", BigInteger, ForeignKey("txlake_sessions.id"), nullable=False),
    # NULL: the session's own lock, on the database in use.
    Column("transaction_id", String(36), index=True),
    Column("resource_type", String(16), nullable=False),  # see ResourceType
    Column("resource_subtype", String(16), nullable=False),  # "" or COMMIT
    Column("database_number", BigInteger, nullable=False),
    Column("entity", BigInteger, nullable=False),  # the object's number; the database's for others
    Column("description", String(255), nullable=False),  # of a KEY, an APPLICATION
    Column("mode", String(16), nullable=False),
    Column("status", String(16), nullable=False),  # GRANT, WAIT, CONVERT, VICTIM
    Column("asked_ms", BigInteger, nullable=False),
    Index("txlake_locks_resource", "resource_type", "entity"),
)

conflicts = Table(
    "txlake_conflicts",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("transaction_id", String(36), nullable=False),
    Column("transaction_number", BigInteger),
    Column("begin_ms", BigInteger),
    Column("session_id", BigInteger),
    Column("process", BigInteger),
    Column("error", String(64), nullable=False),
    Column("message", Text, nullable=False),
    Column("evidence", Text),  # JSON, as errors.Evidence has it
)

# What maintenance did, is doing, and found due.
maintenance = Table(
    "txlake_maintenance",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Column("table_name", Text),  # NULL: the whole lake
    Column("need", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("action", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # What was gained; of work that is due, what is expected.
    Column("files", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    Column("duration_ms", BigInteger),
    Column("session_id", BigInteger),  # of the session that did it, or does it now
    Column("error", Text),
)
