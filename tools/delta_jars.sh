#!/bin/sh
# Brings Delta Spark's jars into .cache/delta-jars for the tests that compare with it. Never fails:
# without them those tests are skipped, and one line here says why.
set -eu
cd "$(dirname "$0")/.."

jars=.cache/delta-jars
say() { printf '%s\n' "Delta Spark's jars: $*" >&2; }
wanted=$(cksum <tools/delta_jars.pom.xml)
[ "$(cat "$jars/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

if ! command -v mvn >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        say "mvn is missing, installing maven"
        mkdir -p .cache
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends maven; } \
            >.cache/setup.log 2>&1 </dev/null || true
    fi
    command -v mvn >/dev/null 2>&1 || { say "no mvn, so their tests are skipped"; exit 0; }
fi

rm -rf "$jars.new"
if mvn -q -B -f tools/delta_jars.pom.xml dependency:copy-dependencies \
    -DincludeGroupIds=io.delta -DoutputDirectory="$(pwd)/$jars.new" >&2 &&
    ls "$jars.new"/delta-spark*.jar >/dev/null 2>&1; then
    printf '%s\n' "$wanted" >"$jars.new/.stamp"
    rm -rf "$jars"
    mv "$jars.new" "$jars"
else
    rm -rf "$jars.new"
    say "mvn could not fetch them, so their tests are skipped"
fi
