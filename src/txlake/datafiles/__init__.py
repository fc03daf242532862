"""Data files, their footers and deletion vectors, in and out, without Spark.

Lives here what the driver and Spark's tasks do alike; tasks get it with the session
(`txlake.spark.shipping`). A module that tasks import needs pyarrow and numpy alone.
"""
