#!/bin/sh
# Makes .cache/ducklake: DuckDB with DuckLake and the catalogs that it can have, which `make bench`
# compares transactions with. In an environment of its own, as extensions go with one release of
# DuckDB. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=1.5.5
venv=.cache/ducklake
wanted=$(pwd; echo "$version"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    --no-deps "duckdb==$version" "duckdb-extension-ducklake==$version" \
    "duckdb-extension-sqlite-scanner==$version" "duckdb-extension-postgres-scanner==$version"
printf '%s\n' "$wanted" >"$venv/.stamp"
