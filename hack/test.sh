#!/usr/bin/env bash
# Runs the tests that need nothing but Go: every package of the root module and of examples/ that is not below a
# directory e2e, and the stock reconciler of examples/controller-runtime. Arguments go to go test. If a module fails, the
# others run nevertheless.
set -euo pipefail
cd "$(dirname "$0")/.."

# Without cgo no C compiler is needed. A test that asks for a control plane here fails at once instead of building one.
# Seeds are the same in every run.
export CGO_ENABLED=0 FAIRLEAD_TEST_CLUSTER=/none/tests-with-a-control-plane-live-in-e2e RAPID_SEED=1

status=0
for module in . examples examples/controller-runtime/controller; do
	echo "==> go test in $module"
	packages=$(go -C "$module" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vE '/e2e(/|$)')
	# shellcheck disable=SC2086 # one argument for each package
	go -C "$module" test -timeout 10m "$@" $packages || status=1
done
((status)) && echo "==> tests failed" || echo "==> all tests passed"
exit "$status"
