#!/usr/bin/env bash
# Fails when a test sleeps without the fake clock of testing/synctest: a sleep synchronises nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=0
while read -r file; do
	# A file of a package may sleep for a bubble that another file of it opens.
	grep -qs '"testing/synctest"' "$(dirname "$file")"/*_test.go && continue
	echo "$file sleeps without testing/synctest" >&2
	failed=1
done < <(git ls-files '*_test.go' | xargs grep -lF 'time.Sleep(')
exit $failed
