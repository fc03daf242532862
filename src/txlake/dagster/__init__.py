"""What Dagster needs of txlake: `TxlakeIOManager`, by which assets are tables of a lake.

| module | owns |
| --- | --- |
| `io_manager` | assets written and loaded, by Dagster's contexts |
| `partitions` | the rows that an asset's partitions are, as a condition in SQL |
"""
