"""HDFS: its store, its calls over HTTP, and its settings in Hadoop's configuration.

`open_store` imports it when a location in HDFS is named. URLs are `storage.locations`'s, as for all
stores.
"""
