"""A lake's server: other engines create, read and write its open tables, as in a Unity Catalog.

It implements Unity Catalog's Delta API (version 1.0) and the calls of the older API with which
clients list and look up names. `app` is an ASGI application, `serving` runs it. Sessions of the
lake carry out the requests, in a bounded number of threads.

| module | owns |
| --- | --- |
| `app` | routes, authorization, limits on concurrency, body size and time |
| `calls` | one request as a handler sees it, and its response |
| `client_sessions` | sessions that clients keep over several requests |
| `api_errors` | the mapping of errors to the API's types |
| `tokens` | bearer tokens: names, permissions, expiry |
| `bodies` | request bodies, as checked values |
| `delta`, `commits`, `creation` | the Delta API: tables, commits, new tables |
| `names` | the older API: catalogs, schemas, tables |
| `iceberg` | Iceberg's REST catalog, to read |
| `served_sql` | SQL over HTTP |
| `scripts`, `refusals` | a script by any door: what a caller may run, and what nobody may |
| `flight` | Flight SQL |
| `responses`, `definitions` | tables in the form of both APIs |
| `serving`, `head_timeout` | the server process |
| `mcp` | tools for agents, by the Model Context Protocol |
"""

from __future__ import annotations
