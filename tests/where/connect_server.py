"""A Spark Connect server: prints its port, ends when its input does, knows no txlake.

Its arguments are Spark's settings, `key=value`.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    """Serve on a free port until the input ends."""
    chosen = dict(argument.split("=", 1) for argument in sys.argv[1:])
    chosen["spark.plugins"] = "org.apache.spark.sql.connect.SparkConnectPlugin"
    chosen["spark.connect.grpc.binding.address"] = "127.0.0.1"
    chosen["spark.connect.grpc.binding.port"] = "0"
    builder = SparkSession.builder.master("local[2]")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        import txlake  # noqa: F401
    except ModuleNotFoundError:
        jvm: Any = spark.sparkContext._jvm
        service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        print(getattr(service, "MODULE$").localPort(), flush=True)  # noqa: T201
        sys.stdin.read()
    else:
        print("txlake is there, and should not be", flush=True)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
