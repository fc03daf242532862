#!/bin/sh
# Brings hadoop-aws and the SDK that it needs (700 MB) into .cache/s3a-jars: Hadoop's client for S3, with
# which `make bench-far` lets Spark read a bucket. Never fails: without them that is left out, and one
# line here says why.
set -eu
cd "$(dirname "$0")/.."

jars=.cache/s3a-jars
say() { printf '%s\n' "hadoop-aws: $*" >&2; }
wanted=$(cksum <tools/s3a_jars.pom.xml)
[ "$(cat "$jars/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0
command -v mvn >/dev/null 2>&1 || { say "no mvn, so Spark reads no bucket with it"; exit 0; }

rm -rf "$jars.new"
if mvn -q -B -f tools/s3a_jars.pom.xml dependency:copy-dependencies \
    -DoutputDirectory="$(pwd)/$jars.new" >&2; then
    printf '%s\n' "$wanted" >"$jars.new/.stamp"
    rm -rf "$jars"
    mv "$jars.new" "$jars"
else
    rm -rf "$jars.new"
    say "mvn could not fetch it, so Spark reads no bucket with it"
fi
