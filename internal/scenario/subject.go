// Package scenario has the fault scenarios that a cache of Kubernetes objects must survive, and a random schedule of
// the same faults. Each scenario checks one guarantee of package source or package store.
//
// A [Scenario] runs against a [Subject]: [Fairlead] in the tests of this package, and client-go's informers in the
// module bench/, which prints the results of both. Runs with a [Wire] of in-memory connections belong in a bubble of
// testing/synctest, where hours of silence or back-off take no time.
package scenario

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// Config is the configuration of a subject. A subject ignores settings that it does not have.
type Config struct {
	REST     *rest.Config
	Resource schema.GroupVersionResource

	Namespaces  []string
	Labels      string
	PageSize    int
	NoWatchList bool
	Protobuf    bool
	Resync      time.Duration  // resync period of subscribers
	Rand        func() float64 // jitter; nil: the subject's default
	Logger      *slog.Logger   // nil: no log
}

// Subject is a cache that is kept up to date by list and watch.
type Subject interface {
	Name() string
	// Start starts to list and watch. It does not wait for the first list.
	Start(cfg Config) (Instance, error)
}

// Instance is a running cache.
type Instance interface {
	Subscribe(name string) Subscriber
	// Cached returns the content of the cache.
	Cached() map[string]watchtest.State
	// Status returns the condition of one scope. ok is false for a subject without conditions.
	Status(namespace string) (s source.Status, ok bool)
	// Stop stops the cache and waits for its goroutines.
	Stop()
}

// Subscriber is a handler that records the events that it receives.
type Subscriber interface {
	Recording() watchtest.Recording
	// Block blocks the handler until Unblock.
	Block()
	Unblock()
	// Leave ends the subscription.
	Leave()
}

// Rescoper is an Instance that can change its namespaces and selectors while it runs.
type Rescoper interface {
	SetNamespaces(namespaces ...string)
	SetLabels(selector string)
}

// Waiter is an Instance that can wait until the cache has reached a version.
type Waiter interface {
	WaitFor(version string, limit time.Duration) error
}
