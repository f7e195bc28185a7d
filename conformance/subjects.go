package main

import (
	"path"
	"regexp"
)

// The version of controller-runtime whose suites run and with which operators are built. Module controllerruntime
// requires the same one.
const (
	runtimeModule  = "sigs.k8s.io/controller-runtime"
	runtimeVersion = "v0.25.2"
)

// A subject is a module with tests.
type subject struct {
	module, version string
	packages        []string // packages with tests, relative to the module
	quiet           []string // packages that may open no informer with the defaults
	test            string   // our own test, added to the packages in both modes if there is no default to replace
}

// name returns the name of a suite in flags and tables.
func (s subject) name(pkg string) string { return path.Join(s.module, pkg) }

func (s subject) chosen(suites *regexp.Regexp) bool {
	for _, pkg := range s.packages {
		if suites.MatchString(s.name(pkg)) {
			return true
		}
	}
	return false
}

// subjects are the tested modules, in the order of the runs. An operator must build with the versions of
// controller-runtime and client-go that module controllerruntime requires.
var subjects = []subject{
	{
		module: runtimeModule, version: runtimeVersion,
		packages: []string{
			"pkg/cache", "pkg/cache/internal", "pkg/source", "pkg/client", "pkg/builder", "pkg/manager",
			"pkg/controller", "pkg/controller/controllerutil", "pkg/cluster", "pkg/webhook", "pkg/handler",
			"pkg/internal/controller", "pkg/internal/source",
			"pkg/internal/recorder", "pkg/envtest",
		},
		quiet: []string{
			"pkg/cache/internal", "pkg/manager", "pkg/cluster", "pkg/controller/controllerutil", "pkg/webhook",
			"pkg/handler", "pkg/internal/source", "pkg/envtest",
		},
	},
	{
		module: "sigs.k8s.io/jobset", version: "v0.12.0",
		packages: []string{"test/integration/controller", "test/integration/webhook"},
	},
	{
		module: "sigs.k8s.io/lws", version: "v0.9.0",
		packages: []string{"test/integration/controllers", "test/integration/webhooks"},
		quiet:    []string{"test/integration/webhooks"},
	},
	// A program that uses only client-go. Its own tests have no server, so our test runs its controller with the
	// factories of its main function.
	{module: "k8s.io/sample-controller", version: "v0.37.0", packages: []string{"."}, test: sampleTest},
}
