"""HDFS: its store, its calls over HTTP, and what Hadoop's settings say of it.

`open_store` imports it when a place in HDFS is named. Where such a place is, as a URL, is
`storage.locations`'s, as with all places.
"""
