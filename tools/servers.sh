#!/bin/sh
# Brings the servers that the storage tests talk to into .cache/servers: Azure's (azurite), Google's
# (fake-gcs-server) and Hadoop's file system; and Delta Kernel, a client of txlake's own server. Never
# fails: without one of them its tests are skipped, and a line here says why.
set -eu
cd "$(dirname "$0")/.."

azurite=3.35.0
fake_gcs=v1.56.1
servers=.cache/servers
mkdir -p "$servers"

say() { printf '%s\n' "servers of the tests: $*" >&2; }
# is_there NAME WANTED: whether that is what was brought the last time.
is_there() { [ "$(cat "$servers/$1.stamp" 2>/dev/null)" = "$2" ]; }
# bring NAME WANTED TOOL COMMAND...: runs the command, which fills the folder of that name.
bring() {
    name=$1 wanted=$2 tool=$3
    shift 3
    is_there "$name" "$wanted" && return
    command -v "$tool" >/dev/null 2>&1 || { say "no $tool, so $name's tests are skipped"; return; }
    say "bringing $name"
    rm -rf "${servers:?}/$name" "$servers/$name.stamp"
    if "$@" >"$servers/$name.log" 2>&1; then
        printf '%s\n' "$wanted" >"$servers/$name.stamp"
    else
        say "$name could not be had ($servers/$name.log), so its tests are skipped"
    fi
}

bring azurite "$azurite" npm \
    npm install --prefix "$servers/azurite" --no-audit --no-fund --ignore-scripts --omit=dev \
    "azurite@$azurite"
bring fake-gcs-server "$fake_gcs" go \
    env GOBIN="$(pwd)/$servers/fake-gcs-server" go install \
    "github.com/fsouza/fake-gcs-server@$fake_gcs"
bring hdfs "$(cksum <tools/hdfs_jars.pom.xml)" mvn \
    mvn -q -B -f tools/hdfs_jars.pom.xml dependency:copy-dependencies \
    -DoutputDirectory="$(pwd)/$servers/hdfs"
bring kernel "$(cksum <tools/kernel_jars.pom.xml)" mvn \
    mvn -q -B -f tools/kernel_jars.pom.xml dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$(pwd)/$servers/kernel"
