#!/usr/bin/env bash
# Installs what the tests need besides Go: a C compiler for the race detector, PostgreSQL for the outbox, and Chromium and axe-core
# for the console. Does nothing where all are there. Debian and its relatives only; elsewhere it says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

# axe-core comes from npm's registry, at the version and the sum of the lock file, into the user's cache.
axe() {
	local lock=console/e2e/axe cache=${XDG_CACHE_HOME:-$HOME/.cache}/fairlead/axe
	cmp -s "$lock/package-lock.json" "$cache/package-lock.json" && [[ -f $cache/node_modules/axe-core/axe.min.js ]] && return
	echo "==> install axe-core for the tests"
	mkdir -p "$cache"
	cp "$lock/package.json" "$cache/"
	cp "$lock/package-lock.json" "$cache/lock.new"
	(cd "$cache" && mv lock.new package-lock.json && npm ci --silent --ignore-scripts --no-audit --no-fund)
}

missing=()
command -v "${CC:-gcc}" >/dev/null || missing+=(gcc libc6-dev)
command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
command -v chromium >/dev/null || missing+=(chromium)
command -v npm >/dev/null || missing+=(npm)
((${#missing[@]})) || { axe; exit 0; }

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
axe
