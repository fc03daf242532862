#!/bin/sh
# pyspark_venv.sh PACKAGE VERSION: makes .cache/PACKAGE-VERSION, .venv with another PySpark in place of
# its own (PACKAGE is pyspark, or pyspark-client, which has no Java), and with another pandas in place
# of the locked one where the version says so: 4.3.0-pandas-3.1.1. A second run does nothing.
set -eu
cd "$(dirname "$0")/.."

package=$1
version=$2
venv=.cache/$package-$version
case $version in
    *-pandas-*) pandas=pandas==${version#*-pandas-} ;;
    *) pandas= ;;
esac
# As in tools/setup.sh: another place, lock or Python makes it stale.
wanted=$(pwd; cksum requirements.lock; .venv/bin/python --version; printf '%s\n' "$pandas")
[ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ] || exit 0

printf '%s\n' "txlake setup: making $venv" >&2
.venv/bin/python -m venv --clear --without-pip "$venv"
.venv/bin/python -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check \
    --no-deps "$package==${version%%-*}" ${pandas:+"$pandas"}
# Everything else is found in .venv, later on the path than what is here.
sites='import sysconfig; print(sysconfig.get_path("purelib"))'
printf "import site; site.addsitedir('%s')\n" "$(.venv/bin/python -c "$sites")" \
    >"$("$venv/bin/python" -c "$sites")/of_the_project.pth"
printf '%s\n' "$wanted" >"$venv/.stamp"
