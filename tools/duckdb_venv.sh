#!/bin/sh
# Makes .cache/duckdb-delta: DuckDB with its Delta extension (delta-kernel-rs inside), which
# `make test-duckdb` reads tables with. In an environment of its own, as the extension goes with one
# release of DuckDB. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=1.5.5
venv=.cache/duckdb-delta
wanted=$(pwd; echo "$version"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    --no-deps "duckdb==$version" "duckdb-extension-delta==$version"
printf '%s\n' "$wanted" >"$venv/.stamp"
