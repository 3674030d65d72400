#!/usr/bin/env bash
# Print the path of the newest or the oldest supported Python of this machine: find_python.sh newest|oldest
#
# It looks at python3.X on the PATH, then at the versions of pyenv, whose commands on the PATH may be mere stand-ins.
set -euo pipefail

supported=(3.10 3.11 3.12 3.13 3.14)
case "${1:-}" in
    oldest) versions=("${supported[@]}") ;;
    newest) mapfile -t versions < <(printf '%s\n' "${supported[@]}" | tac) ;;
    *)
        echo "usage: $0 newest|oldest" >&2
        exit 2
        ;;
esac

pyenv_root=${PYENV_ROOT:-$HOME/.pyenv}
for version in "${versions[@]}"; do
    for candidate in "python$version" "$pyenv_root"/versions/"$version".*/bin/python; do
        # The path of the interpreter itself; a stand-in of pyenv for a version that is not active fails here.
        if path=$("$candidate" -c 'import sys, venv, ensurepip; print(sys.executable)' 2>/dev/null); then
            echo "$path"
            exit 0
        fi
    done
done
echo "No Python of a supported version (${supported[*]}) was found on the PATH or in $pyenv_root/versions." >&2
exit 1
