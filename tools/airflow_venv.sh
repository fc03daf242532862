#!/bin/sh
# Makes .cache/airflow: Airflow with its SQL operators, which tests/examples runs on a lake. In an
# environment of its own, in front of .venv, whose txlake it uses. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

version=3.3.2
common_sql=2.4.0
venv=.cache/airflow
wanted=$(pwd; echo "$version $common_sql"; .venv/bin/python --version)
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    "apache-airflow==$version" "apache-airflow-providers-common-sql==$common_sql"
# Everything else is found in .venv, later on the path than what is here.
sites='import sysconfig; print(sysconfig.get_path("purelib"))'
printf "import site; site.addsitedir('%s')\n" "$(.venv/bin/python -c "$sites")" \
    >"$("$venv/bin/python" -c "$sites")/of_the_project.pth"
printf '%s\n' "$wanted" >"$venv/.stamp"
