#!/usr/bin/env bash
# Writes all generated files below the directory that is given, from the sources here.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1

mkdir -p "$out/cluster"
cp controlplane/go.mod "$out/cluster/gomod.txt"
cp controlplane/go.sum "$out/cluster/gosum.txt"

api=operations/api/v1alpha1
if [[ -d $api ]]; then
	mkdir -p "$out/$api/crds"
	"$CONTROLLER_GEN" object paths="./$api" output:dir="$out/$api"
	"$CONTROLLER_GEN" crd paths="./$api" output:dir="$out/$api/crds"
fi

# The API of users that tests have. Apply configurations are written beside the types, wherever output is to go.
things=internal/testbed/things/v1
"$CONTROLLER_GEN" object paths="./$things" output:dir="$out/$things"
if [[ $out == . ]]; then
	"$CONTROLLER_GEN" applyconfiguration paths="./$things"
else
	kept=$(mktemp -d)
	mv "$things/applyconfiguration" "$kept/"
	trap 'rm -rf "$things/applyconfiguration" && mv "$kept/applyconfiguration" "$things/" && rmdir "$kept"' EXIT
	"$CONTROLLER_GEN" applyconfiguration paths="./$things"
	cp -r "$things/applyconfiguration" "$out/$things/"
fi

# The example of an operator of controller-runtime, a module of its own.
example=examples/controller-runtime
for into in api/v1 config/crd; do mkdir -p "$out/$example/$into"; done
to=$(cd "$out/$example" && pwd)
(cd "$example" && "$CONTROLLER_GEN" object paths=./api/v1 output:dir="$to/api/v1")
(cd "$example" && "$CONTROLLER_GEN" crd paths=./api/v1 output:dir="$to/config/crd")
