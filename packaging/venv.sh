#!/usr/bin/env bash
# Makes or refreshes a virtual environment with amux in it; does nothing, offline too, when it is up to date.
# Usage: venv.sh DIRECTORY [--python PYTHON] [--constraints FILE] [--extras test,check]
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/lib.sh

directory=$1 python='' constraints=/dev/null extras=''
shift
while (($#)); do
    case $1 in
        --python) python=$2 ;;
        --constraints) constraints=$2 ;;
        --extras) extras=$2 ;;
        *) die "venv.sh: unknown option $1" ;;
    esac
    shift 2
done
[[ -n $python ]] || python=$(packaging/find-python.sh) || die "No suitable Python." "See above."

# The source as it is now, apart from what lies about in it: what was built from it must never be stale, and
# two builds at once must not meet.
source_files() { find amuxd pyproject.toml README.md LICENSE -name __pycache__ -prune -o -type f -print; }
digest() { sha256sum | cut -d' ' -f1; }
# The path is part of it because a virtual environment cannot be moved.
# (The list of packages is in pyproject.toml, so that is part of it too.)
environment_stamp=$({ pwd; echo "$directory"; "$python" -VV; cat pyproject.toml "$constraints"; echo "$extras"; } | digest)
source_stamp=$(source_files | LC_ALL=C sort | xargs -d '\n' sha256sum | digest)

same() { [[ -r $directory/$1 && $(<"$directory/$1") == "$2" ]]; }
if same .amux-environment "$environment_stamp" && same .amux-source "$source_stamp" && "$directory/bin/python" -c '' 2>/dev/null; then
    exit 0
fi

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
source_files | tar -c -T - | tar -x -C "$build"

pip() { quietly "$directory/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
failed() { die "The virtual environment $directory could not be made." "What pip said is above; it needs a package index the first time."; }

if ! same .amux-environment "$environment_stamp" || ! "$directory/bin/python" -c '' 2>/dev/null; then
    step "Making the virtual environment $directory with $("$python" -V)"
    rm -rf "$directory"
    quietly "$python" -m venv "$directory" || failed
    pip install 'setuptools>=66' wheel || failed
    # amux with all that it depends on; itself, it is installed below.
    pip install --no-build-isolation -c "$constraints" "$build${extras:+[$extras]}" || failed
    echo "$environment_stamp" >"$directory/.amux-environment"
else
    step "Installing the changed amux into $directory"
fi
rm -rf "$build/build" "$build"/*.egg-info
pip install --no-build-isolation --no-index --no-deps --force-reinstall "$build" || failed
# What pip's script imports for a name that only Windows has takes milliseconds, in which Ctrl-C is not quiet.
sed -i -e '/^import re$/d' -e '/^ *sys\.argv\[0\] = re\.sub(/d' "$directory/bin/amux"
# It loads a module into every Python here, for packages that build with distutils: a fortieth of what amux takes.
rm -f "$directory"/lib/python3*/site-packages/distutils-precedence.pth
# Byte-compiled whatever PYTHONDONTWRITEBYTECODE says: amux is started often.
quietly "$directory/bin/python" -m compileall -q "$("$directory/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/amuxd" || failed
echo "$source_stamp" >"$directory/.amux-source"
