#!/bin/sh
# Brings the JDBC driver of Flight SQL into .cache/flight_jdbc, for the test that calls a server by
# it. Never fails: without it that test is skipped, and one line here says why.
set -eu
cd "$(dirname "$0")/.."

folder=.cache/flight_jdbc
say() { printf '%s\n' "the JDBC driver of Flight SQL: $*" >&2; }
wanted=$(cksum <tools/flight_jdbc.pom.xml)
[ "$(cat "$folder/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

command -v mvn >/dev/null 2>&1 || { say "no mvn (install Maven), so its test is skipped"; exit 0; }
rm -rf "$folder"
mkdir -p "$folder"
if mvn -q -B -f tools/flight_jdbc.pom.xml dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$(pwd)/$folder" >"$folder/log" 2>&1; then
    printf '%s\n' "$wanted" >"$folder/.stamp"
else
    say "it could not be had ($folder/log), so its test is skipped"
fi
