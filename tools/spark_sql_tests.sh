#!/bin/sh
# Brings the tests of Spark's SQL into .cache/spark-sql-tests: the jar of its test classes, which has
# their texts. Never fails: without it nothing is compared, and one line here says why.
set -eu
cd "$(dirname "$0")/.."

artifact=org.apache.spark:spark-sql_2.13:4.2.0:jar:tests
folder=.cache/spark-sql-tests
say() { printf '%s\n' "Spark's SQL tests: $*" >&2; }
[ "$(cat "$folder/.stamp" 2>/dev/null)" != "$artifact" ] || exit 0

if ! command -v mvn >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "mvn is missing, installing maven"
        mkdir -p .cache
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends maven; } \
            >.cache/setup.log 2>&1 </dev/null || true
    fi
    command -v mvn >/dev/null 2>&1 || { say "no mvn, so they are skipped"; exit 0; }
fi

rm -rf "$folder.new"
if mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$(pwd)/$folder.new" \
    >.cache/spark-sql-tests.log 2>&1 && ls "$folder.new"/spark-sql*tests.jar >/dev/null 2>&1; then
    printf '%s\n' "$artifact" >"$folder.new/.stamp"
    rm -rf "$folder"
    mv "$folder.new" "$folder"
else
    rm -rf "$folder.new"
    say "mvn could not fetch them, so they are skipped: .cache/spark-sql-tests.log says why"
fi
