#!/usr/bin/env bash
# Builds the image under a name with the first builder that works on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${1:?the name of the image}
for builder in docker podman buildah; do
	# docker may be a client whose server does not run
	command -v "$builder" >/dev/null && "$builder" info >/dev/null 2>&1 || continue
	echo "==> $builder build $image"
	exec "$builder" build --tag "$image" .
done
echo "there is no builder of images that works: install docker, podman or buildah (or start docker's server)" >&2
exit 1
