#!/usr/bin/env bash
# Prints the Python to use: $PYTHON if set, else the first on PATH that is 3.11 or newer and can make a venv.
# Usage: find-python.sh [VERSION], such as 3.12, for exactly that one, also from pyenv and uv.
set -euo pipefail

fits() {
    # The path behind pyenv's shims and the like; a venv made from it does not depend on them.
    "$1" -c '
import sys, ensurepip, venv
wanted = sys.argv[1]
if wanted and "%d.%d" % sys.version_info[:2] != wanted or sys.version_info < (3, 11):
    sys.exit(1)
print(getattr(sys, "_base_executable", sys.executable) or sys.executable)' "${2:-}" 2>/dev/null
}

if (($#)); then
    fits "python$1" "$1" && exit
    shopt -s nullglob
    for candidate in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}/cpython-$1".*/bin/python3; do
        fits "$candidate" "$1" && exit
    done
    exit 1
fi

if [[ -n ${PYTHON:-} ]]; then
    fits "$PYTHON" && exit
    echo "$PYTHON is not a Python 3.11 or newer that can make virtual environments." >&2
    exit 1
fi
for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
    fits "$candidate" && exit
done
echo "No Python 3.11 or newer that can make virtual environments was found." >&2
exit 1
