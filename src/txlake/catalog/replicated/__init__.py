"""A catalog in a store: each process has a replica, and a log of objects decides.

`log` appends and reads entries, `replica` records and applies the rows that a transaction changed,
`turns` lets the processes write in turn, `leases` shows which of them live, and `database` is the
catalog's database on top of them. A replica is a cache: it can be deleted at any time.
"""
