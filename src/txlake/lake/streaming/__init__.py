"""Structured Streaming: tables as sources and sinks of Spark's streams.

Spark runs Python data sources in separate processes, which open the table again from its location
(`opening`). This package owns the files that a micro-batch reads (`source`), a stream's position
(`offsets`), its options (`options`), the reader and the writer that Spark calls (`reader`,
`writer`, `data_source`), and a lake's records of its sinks (`progress`). `staging` lets tasks write
rows as data files, and `committing` adds the files to the table, for micro-batches (`sink`) and for
the batch writer in `spark_integration.data_source`.
"""
