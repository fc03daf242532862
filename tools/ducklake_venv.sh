#!/bin/sh
# Makes .cache/ducklake: DuckDB with DuckLake, the catalogs that it can have and S3, which `make bench`
# and `make bench-far` compare with, and TPC-DS's generator. In an environment of its own, as extensions go
# with one release of DuckDB. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=1.5.5
venv=.cache/ducklake
extensions="ducklake sqlite-scanner postgres-scanner httpfs tpcds"
wanted=$(pwd; echo "$version" "$extensions"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
# shellcheck disable=SC2046 # a word each
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    --no-deps "duckdb==$version" $(printf "duckdb-extension-%s==$version " $extensions)
printf '%s\n' "$wanted" >"$venv/.stamp"
