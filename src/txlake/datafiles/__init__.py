"""Data files, their footers and deletion vectors: reading and writing them without Spark.

The driver and Spark's tasks share this code, which is shipped to the tasks with the session
(`txlake.spark.shipping`). A module that tasks import depends on pyarrow and numpy only.
"""
