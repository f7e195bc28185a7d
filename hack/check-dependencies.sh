#!/usr/bin/env bash
# Fails when a direct dependency of a module is not named in docs/internals/dependencies.md. Modules are given as arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=0
for module in "$@"; do
	while read -r path; do
		# A line may name several modules of one family by their last element.
		family=${path%/*} last=${path##*/}
		grep -qF "$path" docs/internals/dependencies.md && continue
		grep -F "$family/" docs/internals/dependencies.md | grep -qwF "$last" && continue
		echo "docs/internals/dependencies.md does not say why $module needs $path" >&2
		missing=1
	done < <(go -C "$module" mod edit -json | awk '
		/"Path":/ { gsub(/[",]/, "", $2); path = $2 }
		/"Version":/ { version = 1 }
		/"Indirect": true/ { indirect = 1 }
		/}/ { if (inRequire && version && !indirect) print path; path = ""; version = 0; indirect = 0 }
		/"Require": \[/ { inRequire = 1 }
		/\]/ { inRequire = 0 }' | grep -v '^github.com/fairlead-io/')
done
exit $missing
