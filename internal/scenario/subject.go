// Package scenario holds the fault scenarios that a cache of Kubernetes objects must survive, one for each sentence of
// what package source and package store promise, and a random scheduler of the same faults.
//
// A [Scenario] is run against a [Subject]: ours (see [Fairlead]) in the tests of this package, and client-go's
// informers in the module bench/, which prints what each of them makes of it. Runs with a [Wire] of in-memory
// connections belong into a bubble of testing/synctest: there, hours of silence or back-off take no time.
package scenario

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// Config is what a subject is told. Subjects that do not know a setting ignore it.
type Config struct {
	REST     *rest.Config
	Resource schema.GroupVersionResource

	Namespaces  []string
	Labels      string
	PageSize    int
	NoWatchList bool
	Protobuf    bool
	Resync      time.Duration  // of subscribers
	Rand        func() float64 // jitter; nil: the subject's own
	Logger      *slog.Logger   // nil: none
}

// Subject is a cache that is kept up to date by list and watch.
type Subject interface {
	Name() string
	// Start begins to list and watch. It does not wait.
	Start(cfg Config) (Instance, error)
}

// Instance is a running cache.
type Instance interface {
	Subscribe(name string) Subscriber
	// Cached is what the cache has now.
	Cached() map[string]watchtest.State
	// Status is the condition of one scope; ok is false for a subject that has no such thing.
	Status(namespace string) (s source.Status, ok bool)
	// Stop ends everything and waits for it.
	Stop()
}

// Subscriber is a handler that writes down what it is given.
type Subscriber interface {
	Recording() watchtest.Recording
	// Block makes the handler stand still until Unblock.
	Block()
	Unblock()
	// Leave ends the subscription.
	Leave()
}

// Rescoper is an Instance whose namespaces and selectors can be changed while it runs.
type Rescoper interface {
	SetNamespaces(namespaces ...string)
	SetLabels(selector string)
}

// Waiter is an Instance that can be waited for until it has caught up.
type Waiter interface {
	WaitFor(version string, limit time.Duration) error
}
