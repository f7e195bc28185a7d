#!/usr/bin/env bash
# Runs the end-to-end tests of fairlead as on machines with different clocks. They build fairlead with a standard library
# whose wall clock is ahead in a single process, by as many seconds as TIME_SKEW in its environment says.
#
#	hack/skewed.sh -run 'TestShared$|TestSharedFaults$'    # every other replica is a minute ahead
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

time=$(go env GOROOT)/src/time/time.go
# Each reading of the clock in package time begins with this line; there are few, and the build fails if there are none.
sed 's/^\tsec, nsec, mono := runtimeNow()$/&\n\tsec += skew/' "$time" >"$dir/time.go"
grep -q 'sec += skew' "$dir/time.go"
cat >>"$dir/time.go" <<'EOF'

var skew = readSkew()

func readSkew() (seconds int64) {
	text, _ := syscall.Getenv("TIME_SKEW")
	for _, c := range text {
		seconds = seconds*10 + int64(c-'0')
	}
	return seconds
}
EOF
grep -q '"syscall"' "$dir/time.go" || sed -i '0,/^import (/s//import (\n\t"syscall"/' "$dir/time.go"
printf '{"Replace": {"%s": "%s"}}\n' "$time" "$dir/time.go" >"$dir/overlay.json"
FAIRLEAD_PROCESS_OVERLAY=$dir/overlay.json FAIRLEAD_PROCESS_SKEW=${FAIRLEAD_PROCESS_SKEW:-60} \
	go test -v -count 1 ./cmd/fairlead/e2e "$@"
