#!/bin/sh
# Builds Unity Catalog's own server, of a checkout, into .cache/unity_server, for the tests that hold
# ours against it, and its Spark connector with --connector. A quarter of an hour for the first, and
# nothing if it is there already. The checkout isn't written into.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
built=$here/.cache/unity_server

die() { printf '%s\n' "Unity Catalog's server: $*" >&2; exit 1; }
[ $# -ge 1 ] && [ -f "$1/build.sbt" ] && [ -d "$1/server/src" ] ||
    die "tools/unity_server.sh CHECKOUT [--connector]: expected a checkout of unitycatalog/unitycatalog, found '${1:-}'"
checkout=$(cd "$1" && pwd)
what=server
[ "${2:-}" != --connector ] || what=connector
for tool in java mvn; do
    command -v "$tool" >/dev/null 2>&1 || die "no $tool: install Java 17 or newer, and Maven"
done

# Whose commit it is, or, where it has none, what it holds.
commit=$(git -C "$checkout" rev-parse --verify --quiet HEAD 2>/dev/null) ||
    commit=$(cd "$checkout" && find . -path ./.git -prune -o -type f -print | LC_ALL=C sort |
        grep -E '\.(java|scala|sbt|yaml|json)$' | xargs cksum | cksum)
[ "$(cat "$built/$what.stamp" 2>/dev/null)" != "$commit" ] || exit 0
mkdir -p "$built"
rm -f "$built/$what.stamp"
if [ "$(cat "$built/source.stamp" 2>/dev/null)" != "$commit" ]; then
    rm -rf "$built/source" "$built"/*.stamp "$built"/*.class_path
    mkdir "$built/source"
    (cd "$checkout" && tar -cf - --exclude=./.git --exclude=target .) | tar -xf - -C "$built/source"
    printf '%s\n' "$commit" >"$built/source.stamp"
fi

# sbt as Maven's repository has it, which has the build's plugins too.
version=$(sed -n 's/^sbt\.version *= *//p' "$built/source/project/build.properties")
[ -n "$version" ] || die "project/build.properties names no sbt.version"
mvn -q -B dependency:copy -Dartifact="org.scala-sbt:sbt-launch:$version" \
    -DoutputDirectory="$built" >"$built/sbt.log" 2>&1 || die "no sbt $version ($built/sbt.log)"
printf '[repositories]\n  local\n  maven-central\n' >"$built/repositories"
# sbt's own wish for a terminal is none; the connector is for the Spark of requirements.lock.
build() {
    (cd "$built/source" && java -Xmx3g -Xss8m -Dsbt.repository.config="$built/repositories" \
        -Dsbt.override.build.repos=true -Dsbt.server.autostart=false -Dsbt.color=false \
        -Dsbt.supershell=false -DskipDeltaSpark=true -DsparkVersion=4.2.0 \
        -jar "$built/sbt-launch-$version.jar" "$@") >"$built/$what.log" 2>&1 </dev/null ||
        die "sbt could not build it: $built/$what.log says why"
}
if [ "$what" = server ]; then
    build server/package
    tr ':' '\n' <"$built/source/server/target/classpath" >"$built/jars"
else
    build "export spark/Runtime/fullClasspath"
    grep '^/.*\.jar' "$built/connector.log" | tail -n 1 | tr ':' '\n' >"$built/jars"
fi
[ -s "$built/jars" ] || die "sbt named no class path: $built/$what.log says why"
while read -r one; do [ -e "$one" ] || die "$one isn't there, which sbt named"; done <"$built/jars"
paste -sd: "$built/jars" >"$built/$what.class_path"
rm "$built/jars"
printf '%s\n' "$commit" >"$built/$what.stamp"
