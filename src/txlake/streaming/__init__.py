"""Structured Streaming: tables as sources and sinks of Spark's streams, and as its data sources.

Spark runs Python data sources in processes of their own, which open the table again from its place
(`opening`). Lives here which files a micro-batch reads (`source`), where a stream stands
(`offsets`), what its options mean (`options`), the reader and the writer that Spark is given
(`reader`, `writer`, `data_source`), and what a lake remembers of sinks (`progress`). Rows that
become files in tasks are staged by `staging`, and become part of their table by `committing`: a
micro-batch's (`sink`), and those of the batch writer in `spark_integration.data_source`.
"""
