#!/bin/sh
# Makes .cache/dbt-spark: dbt with dbt-spark and dbt's own tests of adapters, which tests/dbt runs on a
# lake, with the adapter of adapters/dbt-txlake. In an environment of its own, in front of .venv, whose
# PySpark and txlake it uses. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

core=1.11.16
spark=1.11.0
suite=1.20.0
venv=.cache/dbt-spark
wanted=$(pwd; echo "$core $spark $suite"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    "dbt-core==$core" "dbt-spark==$spark" "dbt-tests-adapter==$suite"
# Everything else is found in .venv, later on the path than what is here.
sites='import sysconfig; print(sysconfig.get_path("purelib"))'
printf "import site; site.addsitedir('%s')\n" "$(.venv/bin/python -c "$sites")" \
    >"$("$venv/bin/python" -c "$sites")/of_the_project.pth"
printf '%s\n' "$wanted" >"$venv/.stamp"
