"""The data plane: scans, writes and row changes as Spark jobs; SQL expressions become columns.

Modules here use the JVM gateway only where Spark has no public function, with another way for Spark
Connect, so that classic and Connect sessions behave alike.
"""
