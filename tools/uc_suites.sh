#!/bin/sh
# Runs Delta's own suites of Unity Catalog (spark/unitycatalog of a checkout) against `txlake serve`:
#
#     tools/uc_suites.sh UNITYCATALOG_CHECKOUT DELTA_CHECKOUT [CLASS ...]
#
# Delta Spark is the release that the tests compare with, its Unity Catalog connector is built of the
# checkout (tools/unity_server.sh), Spark is that of .venv. Left out are the suites of Iceberg, whose
# jars Delta's build makes. What is found is in .cache/uc_suites/results.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$here/.cache/uc_suites

die() { printf '%s\n' "Delta's suites: $*" >&2; exit 1; }
[ $# -ge 2 ] || die "tools/uc_suites.sh UNITYCATALOG_CHECKOUT DELTA_CHECKOUT [CLASS ...]"
suites=$2/spark/unitycatalog/src/test/java
[ -d "$suites/io/sparkuctest" ] || die "expected a checkout of delta-io/delta, found '$2'"
suites=$(cd "$suites" && pwd)
"$here/tools/unity_server.sh" "$1"
"$here/tools/unity_server.sh" "$1" --connector
shift 2

mkdir -p "$folder/shims"
wanted=$(cksum <"$here/tools/uc_suites.pom.xml")
if [ "$(cat "$folder/jars.stamp" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$folder/jars" "$folder/jars.stamp"
    mvn -q -B -f "$here/tools/uc_suites.pom.xml" dependency:copy-dependencies \
        -DexcludeGroupIds=org.apache.spark,org.apache.hadoop,io.unitycatalog \
        -DoutputDirectory="$folder/jars" >"$folder/jars.log" 2>&1 ||
        die "mvn could not fetch the jars: $folder/jars.log says why"
    printf '%s\n' "$wanted" >"$folder/jars.stamp"
fi

# Spark's own jars first; of the connector and the server what Spark doesn't have.
spark=$("$here/.venv/bin/python" -c 'import pyspark; print(pyspark.__path__[0])')/jars
beside_spark() {
    tr ':' '\n' <"$here/.cache/unity_server/$1.class_path" |
        grep -vE '/(jackson-[^/]*|hadoop-client-[^/]*|scala-library-[^/]*)\.jar$' |
        paste -sd:
}
connector=$(beside_spark connector)
server=$(beside_spark server)
path="$folder/classes:$folder:$spark/*:$folder/jars/*:$connector:$server"

# Where Spark 4.2 has what Delta's build gives its tests under one name for all releases.
cat >"$folder/shims/StreamingTestShims.java" <<'JAVA'
package org.apache.spark.sql.delta.test.shims;

import org.apache.spark.sql.execution.streaming.runtime.MemoryStream$;

public final class StreamingTestShims {
  public static MemoryStream$ MemoryStream() {
    return MemoryStream$.MODULE$;
  }
}
JAVA
cat >"$folder/log4j2.properties" <<'LOG'
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
LOG
rm -rf "$folder/classes" "$folder/warehouse" "$folder/external" "$folder/work"
mkdir -p "$folder/classes" "$folder/work"
find "$suites" "$folder/shims" -name '*.java' | grep -v Iceberg >"$folder/sources"
javac -nowarn -processorpath "$(echo "$folder"/jars/lombok-*.jar)" -cp "$path" \
    -d "$folder/classes" "@$folder/sources" >"$folder/javac.log" 2>&1 ||
    die "javac could not compile them: $folder/javac.log says why"

PYTHONPATH=$here/src PYTHONUNBUFFERED=1 "$here/.venv/bin/python" -m txlake serve \
    "$folder/warehouse" --port 0 >"$folder/serve.log" 2>&1 &
served=$!
trap 'kill "$served" 2>/dev/null || true' EXIT INT TERM
until url=$(sed -n 's/^serving at //p' "$folder/serve.log") && [ -n "$url" ]; do
    kill -0 "$served" 2>/dev/null || die "txlake serve ended: $folder/serve.log says why"
    sleep 1
done

opens=
for package in java.base/java.lang java.base/java.lang.invoke java.base/java.lang.reflect \
    java.base/java.io java.base/java.net java.base/java.nio java.base/java.util \
    java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/sun.nio.ch \
    java.base/sun.nio.cs java.base/sun.security.action java.base/sun.util.calendar; do
    opens="$opens --add-opens=$package=ALL-UNNAMED"
done
chosen=--scan-classpath=$folder/classes
if [ $# -gt 0 ]; then
    chosen=
    for class in "$@"; do chosen="$chosen --select-class=io.sparkuctest.$class"; done
fi
cd "$folder/work"
# shellcheck disable=SC2086 # several options each
UC_REMOTE=true UC_URI=$url UC_TOKEN=any UC_CATALOG_NAME=warehouse UC_SCHEMA_NAME=default \
    UC_BASE_TABLE_LOCATION=file://$folder/external \
    java -Xmx2g $opens -Djdk.reflect.useDirectMethodHandle=false \
    -Dlog4j2.configurationFile="$folder/log4j2.properties" -Dspark.ui.enabled=false \
    -Dspark.sql.shuffle.partitions=2 -cp "$path" org.junit.platform.console.ConsoleLauncher \
    execute --details=testfeed --disable-banner --disable-ansi-colors $chosen \
    >"$folder/results" 2>&1 || true
grep -E ' tests (successful|failed|aborted|skipped)' "$folder/results" ||
    die "they did not end: $folder/results says why"
grep -E ':: FAILED' "$folder/results" || true
