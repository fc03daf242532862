#!/bin/sh
# python_peer.sh NAME: brings .cache/NAME, a program in Python that tests or the bench work with, apart
# from .venv. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

# front: an environment in front of .venv, whose packages it finds too. alone: an environment with
# nothing but what is named. folder: packages that the tests put in front of .venv's.
case ${1-} in
airflow) # with its SQL operators, which tests/examples runs on a lake
    kind=front
    packages="apache-airflow==3.3.2 apache-airflow-providers-common-sql==2.4.0"
    ;;
dagster) # whose assets tests/dagster materializes in a lake
    kind=front
    packages="dagster==1.13.28"
    ;;
dbt-spark) # and dbt's own tests of adapters, which tests/dbt runs on adapters/dbt-txlake
    kind=front
    packages="dbt-core==1.11.16 dbt-spark==1.11.0 dbt-tests-adapter==1.20.0"
    ;;
gx) # Great Expectations, whose checks tests/examples runs on a branch
    kind=front
    packages="great_expectations==1.24.1"
    ;;
duckdb-delta) # DuckDB, and the extensions by which it reads tables and attaches a served lake
    kind=alone
    duckdb="delta httpfs unity-catalog avro iceberg"
    ;;
ducklake) # DuckDB with DuckLake, the catalogs that it can have, and TPC-DS's generator, for the bench
    kind=alone
    duckdb="ducklake sqlite-scanner postgres-scanner httpfs tpcds"
    ;;
dbapi-compliance) # a compliance suite of Python's database API, by others, for tests/dbapi
    kind=folder
    packages="dbapi-compliance==1.15.0"
    ;;
sqlalchemy-2.0) # the older release that the dialect works with, for tests/sqlalchemy
    kind=folder
    packages="sqlalchemy==2.0.58"
    ;;
*)
    echo "python_peer.sh: no such program: '${1-}'" >&2
    exit 2
    ;;
esac
if [ "${duckdb-}" ]; then # its extensions go with one release
    # shellcheck disable=SC2086 # a word each
    packages="duckdb==1.5.5 $(printf 'duckdb-extension-%s==1.5.5 ' $duckdb)"
fi

place=.cache/$1
wanted=$(pwd; echo "$kind $packages"; .venv/bin/python --version)
[ "$(cat "$place/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $place" >&2
install() {
    # shellcheck disable=SC2086 # a word each
    .venv/bin/python -m pip "$@" --quiet --disable-pip-version-check $packages
}
rm -rf "$place"
if [ $kind = folder ]; then
    install install --no-deps --target "$place"
else
    .venv/bin/python -m venv --without-pip "$place"
    case $kind in
    alone) install --python "$place/bin/python" install --no-deps ;;
    front)
        install --python "$place/bin/python" install
        # Everything else is found in .venv, later on the path than what is here.
        sites='import sysconfig; print(sysconfig.get_path("purelib"))'
        printf "import site; site.addsitedir('%s')\n" "$(.venv/bin/python -c "$sites")" \
            >"$("$place/bin/python" -c "$sites")/of_the_project.pth"
        ;;
    esac
fi
printf '%s\n' "$wanted" >"$place/.stamp"
