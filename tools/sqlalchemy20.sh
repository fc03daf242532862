#!/bin/sh
# Brings .cache/sqlalchemy-2.0: the older SQLAlchemy that the dialect works with, for tests/sqlalchemy,
# which put it in front of .venv's. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=2.0.58
place=.cache/sqlalchemy-2.0
[ "$(cat "$place/.stamp" 2>/dev/null)" != "$version" ] || exit 0

printf '%s\n' "txlake setup: making $place" >&2
rm -rf "$place"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$place" \
    "sqlalchemy==$version"
printf '%s\n' "$version" >"$place/.stamp"
