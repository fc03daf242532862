"""txlake beside raw Spark and delta-rs, on the same rows: `python -m bench --help`."""
