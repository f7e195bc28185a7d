#!/usr/bin/env bash
# What a release consists of, besides the image:
#
#   release.sh names VERSION           the names of the archives
#   release.sh check VERSION           fails unless the tree is ready for it: versions that are written down, a section in CHANGELOG.md
#   release.sh archives VERSION DIR    builds them into DIR, with SHA256SUMS; the same commit gives the same bytes (GNU tar)
#   release.sh manifest VERSION DIR    writes DIR/fairlead.yaml, the manifest of krew, with the sums in DIR/SHA256SUMS
#   release.sh notes VERSION           prints the section of CHANGELOG.md
#
# VERSION is v1.2.3, or v1.2.3-rc.1.
set -euo pipefail
cd "$(dirname "$0")/.."

platforms=(linux/amd64 linux/arm64 darwin/amd64 darwin/arm64)

fail() { echo "release.sh: $*" >&2; exit 1; }

command=${1:-} version=${2:-} dir=${3:-}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || fail "\"$version\" is no version such as v1.2.3"
[[ $command != archives && $command != manifest || -n $dir ]] || fail "$command needs a directory"

archive() { echo "fairlead_${version}_${1/\//_}.tar.gz"; }

notes() {
	awk -v heading="## [${version#v}]" '
		/^## / { inside = index($0, heading) == 1; next }
		inside' CHANGELOG.md
}

case $command in
names)
	for platform in "${platforms[@]}"; do archive "$platform"; done
	;;
check)
	wrong=0
	for want in "deploy/kustomization.yaml:newTag: $version" "deploy/chart/Chart.yaml:appVersion: $version" \
		"deploy/chart/Chart.yaml:version: ${version#v}"; do
		grep -qE "^ *${want#*:}$" "${want%%:*}" || { echo "${want%%:*} does not say ${want#*:}" >&2; wrong=1; }
	done
	[[ -n $(notes | tr -d '[:space:]') ]] || { echo "CHANGELOG.md has no section [${version#v}]" >&2; wrong=1; }
	exit $wrong
	;;
notes)
	notes
	;;
archives)
	mkdir -p "$dir"
	dir=$(cd "$dir" && pwd)
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	for platform in "${platforms[@]}"; do
		echo "==> $platform"
		GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 \
			go build -buildvcs=true -trimpath -ldflags='-s -w -buildid=' -o "$work/fairlead" ./cmd/fairlead
		cp LICENSE README.md "$work/"
		tar --create --sort=name --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX,go-w' \
			--mtime="@$(git log -1 --format=%ct)" -C "$work" LICENSE README.md fairlead | gzip -9n >"$dir/$(archive "$platform")"
	done
	(cd "$dir" && sha256sum -- *.tar.gz >SHA256SUMS)
	;;
manifest)
	edits=(-e '/^#/d' -e "s/v0\.0\.0/$version/g")
	for platform in "${platforms[@]}"; do
		name=$(archive "$platform")
		sum=$(awk -v name="$name" '$2 == name { print $1 }' "$dir/SHA256SUMS")
		[[ $sum =~ ^[0-9a-f]{64}$ ]] || fail "$dir/SHA256SUMS has no sum of $name"
		edits+=(-e "s/sum-of-$name/$sum/")
	done
	sed "${edits[@]}" deploy/krew/fairlead.yaml >"$dir/fairlead.yaml"
	;;
*)
	fail "unknown command \"$command\": use names, check, archives, manifest or notes"
	;;
esac
