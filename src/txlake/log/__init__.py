"""Bytes become a table's state: which files build a version, replay, snapshots, file skipping.

Pure: values in, values out; reading and writing are `transaction`'s.
"""
