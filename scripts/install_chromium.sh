#!/usr/bin/env bash
# Make sure that there is a Chromium for the tests of the page: install Debian's where there is none and apt-get exists.
set -euo pipefail

found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if found; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "There is no chromium and no apt-get to install it with: install Chromium or Chrome, so that it is on the PATH." >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "There is no chromium, and installing it takes root or sudo: run 'apt-get install chromium' as root." >&2
        exit 1
    fi
    as_root=(sudo)
fi
install() {
    "${as_root[@]}" apt-get update -q &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium
}
for wait in 5 20 0; do # mirrors fail at times
    if install; then
        break
    fi
    sleep "$wait"
done
if ! found; then
    echo "apt-get did not bring a chromium: install Chromium or Chrome, so that it is on the PATH." >&2
    exit 1
fi
