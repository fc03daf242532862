#!/bin/sh
# Brings Spark 4.1 with Iceberg's runtime (there is none for Spark 4.2 yet) for the test that reads a
# served lake with Iceberg's own library: PySpark into .cache/pyspark-4.1.4, the jar into
# .cache/iceberg-spark. Never fails: without them that test is skipped, and one line here says why.
set -eu
cd "$(dirname "$0")/.."

tools/pyspark_venv.sh pyspark 4.1.4
folder=.cache/iceberg-spark
say() { printf '%s\n' "Iceberg's runtime for Spark: $*" >&2; }
wanted=$(cksum <tools/iceberg_spark.pom.xml)
[ "$(cat "$folder/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

command -v mvn >/dev/null 2>&1 || { say "no mvn (install Maven), so its test is skipped"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
if mvn -q -B -f tools/iceberg_spark.pom.xml dependency:copy-dependencies -DexcludeTransitive=true \
    -DoutputDirectory="$(pwd)/$folder" >"$folder/log" 2>&1; then
    printf '%s\n' "$wanted" >"$folder/.stamp"
else
    say "it could not be had ($folder/log), so its test is skipped"
fi
