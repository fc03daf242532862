#!/bin/sh
# Makes .cache/dagster: Dagster, whose assets tests/dagster materializes in a lake. In an environment
# of its own, in front of .venv, whose txlake it uses. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=1.13.28
venv=.cache/dagster
wanted=$(pwd; echo "$version"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    "dagster==$version"
# Everything else is found in .venv, later on the path than what is here.
sites='import sysconfig; print(sysconfig.get_path("purelib"))'
printf "import site; site.addsitedir('%s')\n" "$(.venv/bin/python -c "$sites")" \
    >"$("$venv/bin/python" -c "$sites")/of_the_project.pth"
printf '%s\n' "$wanted" >"$venv/.stamp"
