"""The data plane: scans, writes and row changes as Spark jobs; statements' texts become columns.

Nothing here uses the JVM gateway, so that classic sessions and Spark Connect behave alike.
"""
