# Each target does its own set-up: a clean clone with Go, make and git is enough on Debian.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

GO ?= go
BIN := $(CURDIR)/bin

# Every module that has code of ours and needs no other source. controlplane/ and tools/ only pin versions.
MODULES := $(patsubst ./%,%,$(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './controlplane/*' -not -path './tools/*' | sort)))
OTHER_MODULES := $(filter-out .,$(MODULES))

LINT := $(BIN)/golangci-lint
CONTROLLER_GEN := $(BIN)/controller-gen

# Arguments for go test: make test TESTFLAGS='-run TestX'; make test-all TESTFLAGS='-run TestX ./cluster/e2e' tests only
# that package of the root module.
TESTFLAGS ?=
# A file that make test-all writes the time and peak memory of every package to.
TABLE ?=
# How long a soak plays random schedules, then hostile tenants, then how long it fuzzes, and then how long it repeats all tests.
SOAK ?= 1h
BENCHTIME ?= 1s
# What goes to the program of make conformance-suites, such as -runs 5 -suites 'pkg/(cache|client)$$'.
CONFORMANCE ?=
# What goes to the program of make conformance-bugs, such as -bugs cert-manager.
BUGS ?=
# What make image calls it, and what make release makes.
IMAGE ?= fairlead:dev
VERSION ?=

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

.PHONY: up
# Ctrl-C is no error of make, so the shell outlives it, and 130 counts as success.
up: build ## Run control plane, controller, console and examples on this machine until Ctrl-C
	@mkdir -p .fairlead
	@trap : INT; "$(BIN)/fairlead" up --with '"$(BIN)/receiver"' --with '"$(BIN)/director" --database .fairlead/director.db' --with '"$(BIN)/showcase"' || exit $$(($$? == 130 ? 0 : $$?))

.PHONY: build
build: ## Build the programs into bin/
	@echo "==> build fairlead and the examples"
	@$(GO) build -o "$(BIN)/" ./cmd/fairlead
	@$(GO) -C examples build -o "$(BIN)/" ./...

.PHONY: test
test: ## Run the tests that need nothing but Go: the library and the examples (a few minutes)
	@./hack/test.sh $(TESTFLAGS)

.PHONY: test-all
test-all: setup-tests build ## Run every test of every module with the race detector, on a real control plane (about 25 minutes once it is compiled)
	@echo "==> test-all: $(MODULES) (the first time, a control plane is built: about five minutes)"
ifneq ($(TESTFLAGS),)
	@$(BIN)/fairlead up --temporary -- $(GO) test -race -timeout 20m $(TESTFLAGS)
else
	@$(GO) build -o "$(BIN)/" ./hack/testall
	@TESTALL=$(BIN)/testall TABLE=$(TABLE) $(BIN)/fairlead up --temporary -- ./hack/test-all.sh . $(OTHER_MODULES)
endif

.PHONY: lint
lint: check-tidy check-dependencies check-sleeps check-links check-generated ## Check style, layers, defects, links, and that generated files are up to date
	@for module in $(MODULES); do \
		echo "==> lint $$module"; \
		(cd $$module && $(LINT) run --config $(CURDIR)/.golangci.yml ./...); \
	done

.PHONY: fmt
fmt: tools ## Format the code
	@for module in $(MODULES); do (cd $$module && $(LINT) fmt --config $(CURDIR)/.golangci.yml ./...); done

.PHONY: bench
bench: build ## Run the benchmarks, side by side with the peers (BENCHTIME=1s)
	@echo "==> bench"
	@$(GO) -C bench test -count 1 -run TestScenarios -v . > bench/scenarios.out || { cat bench/scenarios.out; exit 1; }
	@grep '^ *|' bench/scenarios.out
	@for rows in watchbench flows consistency operations shardbench; do echo "==> bench: $$rows"; $(GO) -C bench run ./$$rows; done
	@echo "==> bench: controller-runtime, stock and on our stores"
	@$(GO) -C bench run ./watchbench -set adapter -buckets 500
	@$(BIN)/fairlead up --temporary -- $(GO) -C bench test -run '^$$' -bench . -benchtime $(BENCHTIME) -benchmem -timeout 2h ./...

.PHONY: conformance
conformance: conformance-suites conformance-bugs ## Run the suites of other projects with our cache, and find published bugs of public operators again

.PHONY: conformance-suites
conformance-suites: ## Run the suites of controller-runtime and of public operators, stock and on our cache (CONFORMANCE='-runs 5 -suites jobset')
	@echo "==> conformance (the first time, a control plane and the suites are built: about half an hour on two cores)"
	@$(GO) -C conformance run . $(CONFORMANCE)

.PHONY: conformance-bugs
conformance-bugs: ## Find published bugs of public operators before their fix, and not after it (BUGS='-bugs cert-manager')
	@echo "==> conformance-bugs (up to 15 minutes for each version, after the operators and a control plane are built)"
	@$(GO) -C conformance run ./bugs $(BUGS)

.PHONY: soak
soak: setup-tests build ## Play random fault schedules for an hour, then hostile tenants, then fuzz targets, then every test over and over (SOAK=1h each)
	@echo "==> soak for $(SOAK)"
	@FAIRLEAD_SOAK=$(SOAK) $(GO) test -race -v -count 1 -run '^TestRandom$$' -timeout 0 ./internal/scenario
	@FAIRLEAD_SOAK=$(SOAK) $(GO) test -v -count 1 -run '^TestHostileTenants$$' -timeout 0 ./operations/e2e/hostile
	@./hack/fuzz.sh $(SOAK)
	@$(BIN)/fairlead up --temporary -- ./hack/soak.sh $(SOAK)

.PHONY: generate
generate: tools ## Write generated files: deepcopy, CRDs, the control plane's module as text
	@echo "==> generate"
	@CONTROLLER_GEN=$(CONTROLLER_GEN) ./hack/generate.sh .

.PHONY: check-generated
check-generated: tools ## Fail when generated files are not what generate would write
	@echo "==> check generated files"
	@CONTROLLER_GEN=$(CONTROLLER_GEN) ./hack/check-generated.sh

.PHONY: image
image: ## Build the image with docker, podman or buildah (IMAGE=fairlead:dev)
	@./hack/image.sh "$(IMAGE)"

.PHONY: release
release: ## Build the archives of a release, their sums and the krew manifest into dist/ (VERSION=v1.2.3; CONTRIBUTING.md, "Releasing")
	@./hack/release.sh archives "$(VERSION)" dist
	@./hack/release.sh manifest "$(VERSION)" dist

.PHONY: tidy
tidy: ## Bring go.mod and go.sum of every module up to date
	@for module in $(MODULES) controlplane tools; do echo "==> tidy $$module"; $(GO) -C $$module mod tidy; done

.PHONY: check-tidy
check-tidy: # in every module, go.mod and go.sum are what the code needs
	@for module in $(MODULES) controlplane tools; do \
		echo "==> check go.mod in $$module"; \
		$(GO) -C $$module mod tidy -diff || { echo "run: make tidy" >&2; exit 1; }; \
	done

.PHONY: check-dependencies
check-dependencies: # docs/internals/dependencies.md says why there is each dependency
	@./hack/check-dependencies.sh $(MODULES) controlplane tools

.PHONY: check-sleeps
check-sleeps: # no test sleeps, except on a fake clock
	@./hack/check-sleeps.sh

.PHONY: check-links
check-links: # links of pages, and paths and URLs of pages in code, have a target
	@echo "==> check links"
	@$(GO) run ./hack/checklinks

.PHONY: clean
clean: ## Remove what was built and the control plane's data in .fairlead/
	@rm -rf $(BIN) .fairlead dist

.PHONY: setup-tests
setup-tests: # what tests need besides Go
	@./hack/setup-tests.sh

# The go command knows whether they are up to date, and does next to nothing when they are.
.PHONY: tools
tools:
	@echo "==> build tools (the first time, this takes about two minutes)"
	@$(GO) -C tools build -o $(BIN)/ tool
