"""From a store's files to a table, and from staged actions to a commit that stands.

Owns the loops: load, follow the commits that came first, commit, publish, recover, clean up.
"""
