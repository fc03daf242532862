"""The local data plane: rows of few files are read, changed and written by the driver itself.

Works by pyarrow, without Spark. Its functions decline what they can't do exactly as Spark would, or
not sooner: Spark does that then.
"""
