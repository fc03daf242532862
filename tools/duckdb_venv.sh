#!/bin/sh
# Makes .cache/duckdb-delta: DuckDB with its Delta extension (delta-kernel-rs inside), which
# `make test-duckdb` reads tables with, and those by which it attaches a served lake, as a Unity Catalog
# and as Iceberg's. In an environment of its own, as the extensions go with one release of DuckDB. A
# second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=1.5.5
venv=.cache/duckdb-delta
extensions="delta httpfs unity-catalog avro iceberg"
wanted=$(pwd; echo "$version" "$extensions"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    --no-deps "duckdb==$version" $(printf "duckdb-extension-%s==$version " $extensions)
printf '%s\n' "$wanted" >"$venv/.stamp"
