"""Which tables belong to the lake: attach, detach, drop and undrop tables, open and recover a lake.

`commit.membership` has the owner that a table's own log names.
"""
