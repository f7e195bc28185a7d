package reconcile

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
)

// Host runs controllers. The fairlead runtime is one. One that is a [Checker], too, learns what is wrong with the
// declarations of its controllers, all of it, before it begins; others when they run. One that is an [Overseer] has
// them log where it does.
type Host interface {
	// Add has fn run from the start of the host until it returns or the host stops, which cancels its context.
	Add(name string, fn func(ctx context.Context) error)
	// Cache and Client may be nil if the host could not be made; its Run then says why.
	Cache() *cache.Cache
	Client() *client.Client
	// Registry is where the metrics of controllers are registered.
	Registry() *prometheus.Registry
}

// Checker asks, before it begins, what is wrong with what was declared on it. fn sends nothing. What is declared later
// is not asked.
type Checker interface {
	Check(fn func() error)
}

// Overseer says what the controllers that are declared on it inherit, and is told of each, for instance to show it.
type Overseer interface {
	Inherit() Inherited
	Oversee(c *Controller)
}

// Inherited is what a controller has of its host. The zero value is what one has whose host is no [Overseer].
type Inherited struct {
	// Logger is used by a controller without one of its own, and by the engine of [Flow].
	Logger *slog.Logger
	// TracerProvider is used by a controller without one of its own, and by the engine of [Flow].
	TracerProvider trace.TracerProvider
	// Shards says which of the objects this process works on, where replicas share them; nil: on all.
	Shards Shards
	// Cluster is the name of the cluster, where there are several.
	Cluster string
	// Degraded lets the others run when something that a controller watches cannot be watched, such as a kind that does
	// not exist yet: it is tried again with back-off. Otherwise the controller fails.
	Degraded bool
}
