#!/usr/bin/env bash
# Installs what the tests need besides Go: a C compiler for the race detector, and PostgreSQL for the outbox. Does nothing
# where both are there. Debian and its relatives only; elsewhere it says what to install.
set -euo pipefail

missing=()
command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
	echo "the tests need: ${missing[*]}; please install them" >&2
	exit 1
fi
sudo=()
if ((EUID != 0)); then
	command -v sudo >/dev/null || { echo "the tests need: ${missing[*]}; please install them as root" >&2; exit 1; }
	sudo=(sudo)
fi
echo "==> install for the tests: ${missing[*]}"
# The tests start servers of their own; none is to be made or started by the package.
"${sudo[@]}" mkdir -p /etc/postgresql-common
echo 'create_main_cluster = false' | "${sudo[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
