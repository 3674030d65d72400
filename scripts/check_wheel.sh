#!/usr/bin/env bash
# Build a wheel, install it into a clean environment with no compiler on its PATH, and explain a model there.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

"$PYTHON" -m pip wheel --quiet --no-deps --wheel-dir "$room/dist" .
"$PYTHON" -m venv "$room/venv"

# The new environment sees its own programs and nothing else.
mkdir "$room/home"
clean() { env PATH="$room/venv/bin" HOME="$room/home" "$@"; }
for tool in cc gcc g++ c++ clang cmake ninja make; do
    if clean "$room/venv/bin/python" -c "import shutil, sys; sys.exit(shutil.which('$tool') is None)"; then
        echo "$tool is on the PATH of the clean environment" >&2
        exit 1
    fi
done
wheel=$(echo "$room"/dist/axil-*.whl)
clean "$room/venv/bin/python" -m pip install --quiet "$wheel[demo]"
cp examples/diabetes.py "$room/"
(cd "$room" && clean "$room/venv/bin/python" diabetes.py)
echo "$(basename "$wheel") installs and explains without a compiler"
