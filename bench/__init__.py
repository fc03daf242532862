"""txlake beside raw Spark, Delta Spark and delta-rs, on the same files (`python -m bench -h`)."""
