#!/bin/sh
# Brings .cache/dbapi-compliance: the compliance suite of Python's database API, by others, which
# tests/dbapi runs unchanged. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=1.15.0
place=.cache/dbapi-compliance
[ "$(cat "$place/.stamp" 2>/dev/null)" != "$version" ] || exit 0

printf '%s\n' "txlake setup: making $place" >&2
rm -rf "$place"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$place" \
    "dbapi-compliance==$version"
printf '%s\n' "$version" >"$place/.stamp"
