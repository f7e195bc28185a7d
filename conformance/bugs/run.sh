#!/usr/bin/env bash
# Plays operators with published bugs through every fault. A finding is expected at the commit before the fix, and none
# at the fix. Arguments: names of directories (default: all).
# SOURCES is a directory of clones, named as the directories here (default: the public repositories are cloned).
set -euo pipefail
cd "$(dirname "$0")"

# directory, repository, commit before the fix, commit of the fix, expected line of the finding
bugs='
agentsandbox https://github.com/kubernetes-sigs/agent-sandbox dfb50895dfb1a61180b8fff790e6a3c3732f037a af8a79062148c81a699e265149f54c5d925804bf there are 3 sandboxes in a pool of 2
rabbitmq https://github.com/rabbitmq/cluster-operator 421030fab465c7a0618aa28db7399146686cae9c 35d4743482c9563a782fc8ec2bb63d95902fa62d spec.resources.requests.storage is "10Gi"; without the fault it is "15Gi"
'

# checkout DIRECTORY REPOSITORY COMMIT
checkout() {
	rm -rf "$1/source"
	local from=$2
	if [ -n "${SOURCES:-}" ]; then from=$SOURCES/$1; fi
	git clone --quiet --no-checkout "$from" "$1/source"
	git -C "$1/source" checkout --quiet "$3"
	if [ -f "$1/testdata/build.patch" ]; then git -C "$1/source" apply "$PWD/$1/testdata/build.patch"; fi
}

failed=0
while read -r directory repository before after line; do
	if [ -z "$directory" ] || { [ $# -gt 0 ] && [[ " $* " != *" $directory "* ]]; }; then continue; fi
	echo "==> $directory before the fix, ${before:0:12}: a finding is expected"
	checkout "$directory" "$repository" "$before"
	output=$(cd "$directory" && go test -count 1 -v . 2>&1) && status=0 || status=$?
	grep -E 'findings? in |simulate: finding|replay:' <<<"$output" || echo "$output"
	if [ "$status" -eq 0 ] || ! grep -qF "$line" <<<"$output"; then
		echo "not found: $line" >&2
		failed=1
	fi
	echo "==> $directory at the fix, ${after:0:12}: no finding is expected"
	checkout "$directory" "$repository" "$after"
	output=$(cd "$directory" && go test -count 1 -v . 2>&1) && status=0 || status=$?
	if [ "$status" -ne 0 ]; then
		echo "$output"
		failed=1
	else
		grep -E 'findings? in ' <<<"$output"
	fi
done <<<"$bugs"
exit "$failed"
