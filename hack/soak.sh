#!/usr/bin/env bash
# Runs the root module's tests again and again, in random order, until the time (such as 90s, 10m, 2h) is over or one fails.
set -euo pipefail
cd "$(dirname "$0")/.."

case $1 in
*s) seconds=${1%s} ;;
*m) seconds=$((${1%m} * 60)) ;;
*h) seconds=$((${1%h} * 3600)) ;;
*) echo "soak: $1 is not a duration such as 90s, 10m or 2h" >&2 && exit 2 ;;
esac

end=$((SECONDS + seconds)) round=0
while ((SECONDS < end)); do
	round=$((round + 1))
	echo "==> soak round $round, $((end - SECONDS))s left"
	FAIRLEAD_SEED_BASE=soak-$RANDOM$RANDOM
	echo "==> seeds follow from FAIRLEAD_SEED_BASE=$FAIRLEAD_SEED_BASE"
	export FAIRLEAD_SEED_BASE
	go test -race -count 1 -shuffle on -timeout 30m ./...
done
echo "==> $round rounds passed"
