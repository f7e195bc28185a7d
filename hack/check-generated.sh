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
for file in operations/api/v1alpha1/crds/*.yaml; do
	if [[ -e $file && ! -e $fresh/$file ]]; then
		echo "$file is generated from nothing"
		status=1
	fi
done

# What fairlead new writes in the place of controller-gen is what that would write.
written=$(mktemp -d)
trap 'rm -rf "$fresh" "$written"' EXIT
go build -o "$written/fairlead" ./cmd/fairlead
"$written/fairlead" new "$written/web" --module example.com/web --group web.example.com --kind WebPage 2>/dev/null
for more in "kind --group web.example.com --kind Web" \
	"kind --group shop.example.org --version v1 --kind Policy --cluster-scoped" \
	"version --group web.example.com --kind WebPage --version v1" \
	"version --group web.example.com --kind Web --version v1" \
	"version --group shop.example.org --kind Policy --version v2"; do
	# shellcheck disable=SC2086 # they are several words
	"$written/fairlead" new $more --dir "$written/web" 2>/dev/null
done
cp -r "$written/web" "$written/again"
(cd "$written/again" && "$CONTROLLER_GEN" object crd paths=./api/... output:crd:dir=deploy/crds && "$written/fairlead" new conversion 2>/dev/null)
if ! diff -ru "$written/web" "$written/again"; then
	echo "cmd/fairlead/internal/project/template is not what controller-gen writes: change it as shown" >&2
	status=1
fi

if ((status)); then
	echo "generated files are out of date, run: make generate" >&2
fi
exit "$status"
