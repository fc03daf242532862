"""Structured Streaming: tables as sources and sinks of Spark's streams.

The source is a Python data source of Spark's: Spark runs it in processes of its own, which open the
table again from its place. Lives here which files a micro-batch reads (`source`), where a stream
stands (`offsets`), what its options mean (`options`), the class that Spark is given
(`data_source`), and what a sink commits once a micro-batch (`batches`).
"""
