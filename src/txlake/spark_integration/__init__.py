"""The integration with Spark's API: `enable` makes a Spark session work with a lake's tables.

Programs written for Delta Spark then run unchanged. `enabling` explains how a session is enabled,
and why that way. Each entry point has its module: `sql`, `reading`, `writing`, `writing_v2`,
`merging`, `streams` and `catalog`. `options` alone interprets Delta's options, and `overrides` puts
the lake's methods before PySpark's own. `delta_package` stands in for the package `delta`;
`data_source` serves sessions that aren't enabled.
"""

from __future__ import annotations
