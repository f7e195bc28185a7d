#!/usr/bin/env bash
# Builds the tests of a package with a standard library whose wall clock can be set ahead for a single process, by as many
# seconds as TIME_SKEW in its environment says, and runs them: what two machines with different clocks are, on one machine.
#
#	hack/skewed.sh ./cmd/fairlead -test.run 'TestShared$|TestSharedFaults$'    # every other replica is a minute ahead
set -euo pipefail
cd "$(dirname "$0")/.."

package=$1
shift
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
echo "==> build the standard library and the tests with a clock that can be set" >&2
go test -overlay "$dir/overlay.json" -c -o "$dir/test" "$package"
cd "$package"
FAIRLEAD_PROCESS_SKEW=${FAIRLEAD_PROCESS_SKEW:-60} "$dir/test" -test.v "$@"
