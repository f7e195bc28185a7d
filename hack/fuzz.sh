#!/usr/bin/env bash
# Runs the fuzz targets of the root module one after the other, the time (such as 90s, 10m, 2h) shared among them. What fails is written into
# testdata/fuzz of its package, where go test finds it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

case $1 in
*s) seconds=${1%s} ;;
*m) seconds=$((${1%m} * 60)) ;;
*h) seconds=$((${1%h} * 3600)) ;;
*) echo "fuzz: $1 is not a duration such as 90s, 10m or 2h" >&2 && exit 2 ;;
esac

modules=()
while read -r module; do modules+=(":!${module%/go.mod}"); done < <(git ls-files '*/go.mod')
mapfile -t found < <(git grep -oE '^func Fuzz[A-Za-z0-9]+' -- '*_test.go' "${modules[@]}")
echo "==> ${#found[@]} fuzz targets"
each=$((seconds / ${#found[@]} > 0 ? seconds / ${#found[@]} : 1))
for at in "${found[@]}"; do
	file=${at%%:*} target=${at##*func }
	echo "==> $target in ${file%/*} for ${each}s"
	# An input that is of interest is made small for a moment only: for large ones that takes minutes.
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${each}s" -fuzzminimizetime 2s -parallel 1 "./${file%/*}"
done
