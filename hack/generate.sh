#!/usr/bin/env bash
# Writes all generated files below the directory that is given, from the sources here.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1

mkdir -p "$out/cluster"
cp controlplane/go.mod "$out/cluster/gomod.txt"
cp controlplane/go.sum "$out/cluster/gosum.txt"

api=api/v1alpha1
if [[ -d $api ]]; then
	mkdir -p "$out/$api/crds"
	"$CONTROLLER_GEN" object paths="./$api" output:dir="$out/$api"
	"$CONTROLLER_GEN" crd paths="./$api" output:dir="$out/$api/crds"
fi
