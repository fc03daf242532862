"""A lake over Flight SQL, for ADBC, JDBC and what speaks them (docs/connect-your-tool.md).

A gRPC server of Arrow Flight's service. It is built on grpcio, not on `pyarrow.flight`, whose
server can't send the status ABORTED, by which clients tell a conflict from a fault, isn't told when
a call is cancelled, and accepts any number of calls. Source: Arrow's "Flight SQL" and its protocol
files, Flight.proto and FlightSql.proto.

| module | owns |
| --- | --- |
| `serving` | the server: address, TLS, threads, the timer that ends what is idle |
| `service` | the calls of Flight, each with its caller, its status and its end when cancelled |
| `commands` | the commands and actions of Flight SQL |
| `statements` | a statement's session, its run, and its cancellation |
| `handles` | what clients keep by handles: transactions, prepared statements, results |
| `results` | the rows of a statement as record batches, made as they are sent |
| `parameters` | the markers of a prepared statement, and the types that they want |
| `ingest` | a stream of rows as one write |
| `metadata`, `sql_info` | the lake's names, and what the server is and can do, as tables |
| `arrow_stream` | Arrow's messages in those of Flight |
| `messages` | the protocol's messages |
| `statuses` | an error as a gRPC status, its facts as details |
"""

from __future__ import annotations
