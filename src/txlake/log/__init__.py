"""From bytes to a table's state: choice of a version's files, replay, snapshots, file skipping.

Pure: values in, values out; reading and writing are `transaction`'s.
"""
