package reconcile

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/shard"
)

// Host runs controllers. The fairlead runtime is a Host.
//
// A Host that is also a [Checker] collects the errors of all declarations before it starts. On other hosts a controller
// returns its errors when it runs. A Host that is also an [Overseer] passes its settings, such as the logger, to
// controllers.
type Host interface {
	// Add registers fn to run from the start of the host until fn returns. The host cancels the context of fn when it
	// stops.
	Add(name string, fn func(ctx context.Context) error)
	// Cache and Client return nil if the host could not be set up; its Run then returns the error.
	Cache() *cache.Cache
	Client() *client.Client
	// Registry returns the registry for the metrics of controllers.
	Registry() *prometheus.Registry
}

// Checker checks declarations before the host starts. fn returns the errors of a declaration and sends no request.
// Declarations made after the start are not checked.
type Checker interface {
	Check(fn func() error)
}

// Overseer returns the settings that its controllers inherit, and receives each declared controller, for example to
// show it.
type Overseer interface {
	Inherit() Inherited
	// Oversee returns an error if c cannot run with the host, for example because another controller has its name.
	Oversee(c *Controller) error
}

// Inherited are the settings of a controller that come from its host. It is zero for a host that is no [Overseer].
type Inherited struct {
	// Logger is for a controller without its own logger, and for the engine of [Flow].
	Logger *slog.Logger
	// TracerProvider is for a controller without its own provider, and for the engine of [Flow].
	TracerProvider trace.TracerProvider
	// Shards selects the objects of this process where replicas share the objects; nil means all. The controllers are
	// participants of the group.
	Shards shard.Membership
	// Cluster is the name of the cluster, if there are several.
	Cluster string
	// Degraded makes a controller retry with back-off when it cannot watch a kind, for example because the kind does not
	// exist yet. The other controllers run meanwhile. Otherwise the controller fails.
	Degraded bool
}
