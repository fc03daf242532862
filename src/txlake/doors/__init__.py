"""Spark's own doors to a lake: what programs written for Delta Spark call, on a session of theirs.

`enabling` says how a Spark session is given to a lake, and why in that way. A room for each door:
`sql`, `reading`, `writing` and `writing_v2`, `catalog`; `options` is the one place where Delta's
options get their meaning; `fronts` puts the lake's methods before PySpark's own. `delta_package`
stands in for the package `delta`; `data_source` is for sessions that aren't enabled.
"""

from __future__ import annotations
