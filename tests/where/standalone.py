"""A standalone Spark cluster on this machine: a master, and two workers with an address each.

Master and workers live in the driver's JVM, as those of Spark's `local-cluster` do; the executors
are processes. With addresses of their own, which the workers of `local-cluster` lack, they are two
machines to Spark's speculation: it gives no second attempt to the machine of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS = ("127.0.0.2", "127.0.0.3")
_MEMORY_MB = 2048


def start(settings: Mapping[str, str], folder: Path) -> SparkSession:
    """A session on a new cluster, whose workers keep their files in this folder.

    The environment's SPARK_HOME says which Spark the executors run.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    pairs = [*settings.items(), *_OF_THE_CLUSTER.items()]
    gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(pairs))
    jvm: Any = gateway.jvm
    conf = SparkConf(loadDefaults=False, _jvm=jvm).setAll(pairs)
    deploy = jvm.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf._jconf)
    url = f"spark://{master._1().address().hostPort()}"
    urls = gateway.new_array(jvm.java.lang.String, 1)
    urls[0] = url
    nothing = getattr(getattr(jvm, "scala.None$"), "MODULE$")
    for number, host in enumerate(HOSTS):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host,
            0,
            0,
            1,
            _MEMORY_MB,
            urls,
            str(folder),
            jvm.scala.Some(number),
            conf._jconf,
            nothing,
        )
    conf.setMaster(url)
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


# Second attempts start early and often: whatever runs here must bear them.
_OF_THE_CLUSTER = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC",
    "spark.master.rest.enabled": "false",
    "spark.master.ui.port": "0",
    "spark.worker.ui.port": "0",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
}
