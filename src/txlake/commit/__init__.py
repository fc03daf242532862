"""Commits: from a store's files to a table's state, and from staged actions to a commit.

Owns the loops: load, rebase onto the commits that came first, commit, publish, recover, clean up.
"""
