"""Which tables are the lake's: attached and detached, dropped and kept, taken in by a recovery.

Whose a table is, as its own log says, is `commit.membership`'s.
"""
