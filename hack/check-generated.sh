#!/usr/bin/env bash
# Fails when a generated file differs from what hack/generate.sh writes, or is one that it no longer writes.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
hack/generate.sh "$fresh"

status=0
while IFS= read -r file; do
	diff -u "$file" "$fresh/$file" || status=1
done < <(cd "$fresh" && find . -type f | sort)
for file in api/v1alpha1/crds/*.yaml; do
	if [[ -e $file && ! -e $fresh/$file ]]; then
		echo "$file is generated from nothing"
		status=1
	fi
done
if ((status)); then
	echo "generated files are out of date, run: make generate" >&2
fi
exit "$status"
