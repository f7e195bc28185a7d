#!/usr/bin/env bash
# Runs all tests of the modules that are given as arguments. A module that fails does not keep the others from running.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
for module in "$@"; do
	echo "==> go test -race ./... in $module"
	go -C "$module" test -race -timeout 20m ./... || failed+=("$module")
done
if ((${#failed[@]})); then
	echo "==> tests failed in: ${failed[*]}"
	exit 1
fi
echo "==> all tests passed in: $*"
