#!/bin/sh
# mutants.sh [FOLDER]: mutmut's mutants of src/txlake/FOLDER (conflict), and which of them the tests in
# tests/FOLDER don't notice. Works on a copy below .cache; what it found there before is kept.
set -eu
cd "$(dirname "$0")/.."

folder=${1:-conflict}
packages="mutmut==3.8.1 libcst==1.9.0 coverage==7.17.3 setproctitle==1.3.8 pyyaml==6.0.3"
venv=.cache/mutmut
wanted=$(pwd; echo "$packages"; .venv/bin/python --version)
if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ]; then
    .venv/bin/python -m venv --clear --without-pip "$venv"
    # shellcheck disable=SC2086  # the packages are words
    .venv/bin/python -m pip --python "$venv/bin/python" install --quiet \
        --disable-pip-version-check --no-deps $packages
    # Everything else is found in .venv, later on the path.
    sites='import sysconfig; print(sysconfig.get_path("purelib"))'
    printf "import site; site.addsitedir('%s')\n" "$(.venv/bin/python -c "$sites")" \
        >"$("$venv/bin/python" -c "$sites")/of_the_project.pth"
    printf '%s\n' "$wanted" >"$venv/.stamp"
fi

copy=.cache/mutants/$folder
mkdir -p "$copy"
rm -rf "$copy/src" "$copy/tests"
cp -R src tests "$copy/"
# Those that run the killers of tests/mutation, or play thousands of histories, take too long here.
rm -rf "$copy/tests/mutation"
{
    cat pyproject.toml
    printf '[tool.mutmut]\nsource_paths = ["src"]\nonly_mutate = ["src/txlake/%s/*.py"]\n' "$folder"
    printf 'use_git_change_detection = false\npytest_add_cli_args_test_selection = ["tests/%s", ' \
        "$folder"
    printf '"--ignore-glob=*histories.py", "--ignore-glob=*simulation.py"]\n'
} >"$copy/pyproject.toml"
python=$PWD/$venv/bin/python
cd "$copy"
"$python" -m mutmut run --max-children "${PROCESSES:-2}"
"$python" -m mutmut results
