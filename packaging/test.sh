#!/usr/bin/env bash
# The checks and the tests. Usage: test.sh [check]
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/lib.sh

workers=${AMUX_TEST_WORKERS:-3}
failures=() untested=()
not_tested() {
    untested+=("$1")
    note "$2"
}
passes() {
    local what=$1
    shift
    step "$what"
    "$@" || { failures+=("$what"); note "FAILED: $what"; }
}

packaging/venv.sh build/venv/test --extras test,check
bin=build/venv/test/bin

shell_scripts() {
    local file first
    while IFS= read -r -d '' file; do
        [[ -f $file ]] || continue
        IFS= read -r first <"$file" || true
        [[ $file == *.sh || $first == '#!'*sh ]] && printf '%s\0' "$file"
    done < <(git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -type f -not -path './build/*' -not -path './.venv/*' -print0)
}

check_shell_scripts() {
    local file first status=0
    while IFS= read -r -d '' file; do
        IFS= read -r first <"$file" || true
        # A script that others run through "sh FILE" may have neither the line that says so nor the directive.
        if [[ $first == '#!'* ]] || grep -q '^# shellcheck shell=' "$file"; then
            shellcheck -x -S warning "$file" || status=1
        else
            shellcheck -x -S warning -s sh "$file" || status=1
        fi
    done < <(shell_scripts)
    return "$status"
}

passes "ruff check" "$bin/ruff" check --quiet .
passes "ruff format" "$bin/ruff" format --check --quiet .
passes "mypy" "$bin/mypy" --no-error-summary
if has shellcheck; then
    passes "shellcheck" check_shell_scripts
else
    not_tested "the scripts" "shellcheck is not installed: the scripts were not checked"
fi
if [[ ${1:-} == check ]]; then
    ((${#failures[@]} == 0)) || die "Failed: ${failures[*]}"
    exit 0
fi

# Every test, on the default Python with the newest dependencies.
pytest=(-n "$workers" --dist worksteal -m "not nightly")
passes "All tests on $("$bin/python" -V)" tests_as_root "$bin/pytest" "${pytest[@]}"

# On each Python, with the oldest packages where Debian 12 has them, what depends on these: the unit tests, but for
# those that are git's alone, and of the others those in which the bus, the command line and tmux are called.
core=(tests/unit --ignore tests/unit/test_never_lost.py)
for subject in attach bus cli created events launch log_control resume sending terminal; do
    files=(tests/integration/test_"$subject"*.py)
    [[ -e ${files[0]} ]] || die "There is no test of: $subject"
    core+=("${files[@]}")
done
on_python() {
    local version=$1 dependencies=$2 python
    local directory=build/venv/$version-$dependencies constraints=/dev/null
    if ! python=$(packaging/find-python.sh "$version"); then
        not_tested "Python $version" "Python $version is not on this machine: amux was not tested on it"
        return
    fi
    [[ $dependencies == newest ]] || constraints=packaging/$dependencies.txt
    packaging/venv.sh "$directory" --python "$python" --constraints "$constraints" --extras test ||
        { failures+=("Python $version with the $dependencies dependencies"); return; }
    passes "The core of the tests on Python $version with the $dependencies dependencies" \
        tests_as_root "$directory/bin/pytest" "${pytest[@]}" "${core[@]}"
}

on_python 3.11 oldest
on_python 3.12 newest
on_python 3.13 newest

((${#failures[@]} == 0)) || die "Failed: $(IFS=,; echo "${failures[*]}")"
if ((${#untested[@]})); then
    names=$(IFS=,; echo "${untested[*]}")
    [[ -z ${AMUX_TEST_EVERYTHING:-} ]] || die "What was tested passed, and this was not tested: ${names//,/, }"
    step "What was tested passed; not tested here: ${names//,/, }"
else
    step "Everything passed"
fi
