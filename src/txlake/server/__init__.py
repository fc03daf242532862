"""A lake's server: other engines create, read and write its open tables, as in a Unity Catalog.

It speaks Unity Catalog's Delta API (version 1.0) and the calls of the older API with which clients
list and get names. `app` is an ASGI application, `serving` runs it; what is asked is carried out by
sessions of the lake, in a bounded number of threads.

| room | owns |
| --- | --- |
| `app` | routes, who may call, how much may be asked at once, how large and how long |
| `calls` | one request as a handler sees it, and its answer |
| `failures` | errors as the API names them |
| `tokens` | who may call, and for how long |
| `bodies` | what requests say, as checked values |
| `delta`, `commits`, `creation` | the Delta API: tables, commits, new tables |
| `names` | the older API: catalogs, schemas, tables |
| `served_sql`, `refusals` | SQL for programs, and what of it isn't carried out for anybody |
| `answers`, `columns` | tables as both APIs show them |
"""

from __future__ import annotations
