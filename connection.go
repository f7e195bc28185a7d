package fairlead

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/abandon"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/store"
)

// connection has the clients and the cache of one cluster, which share the connection to its API server. It does not
// change after connect. After an error of connect, some of them are nil.
type connection struct {
	calls   *call.Client
	cache   *cache.Cache
	client  *client.Client
	abandon context.CancelFunc // cancels discovery, which takes no context
}

// connect sends no requests. register registers metrics.
func (c *connection) connect(
	cfg *rest.Config, name string, o options, register func(...prometheus.Collector) error,
) error {
	if cfg == nil {
		return errors.New("no rest.Config")
	}
	metrics := call.NewMetrics()
	var err error
	if c.calls, err = call.New(call.Options{
		Config: cfg, Logger: o.logger, Metrics: metrics, TracerProvider: o.tracers,
	}); err != nil {
		return err
	}
	mapper := o.mapper
	if mapper == nil {
		if mapper, err = c.discover(cfg, o.logger); err != nil {
			return err
		}
	}
	dir := o.dir
	if dir != "" {
		dir = filepath.Join(dir, directory(name))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if c.cache, err = cache.NewCache(cache.CacheOptions{
		Dir: dir, Config: cfg, Connection: c.calls.Connection(), Scheme: o.scheme, Mapper: mapper, Source: o.source,
		Logger: o.logger, Linger: o.linger, TracerProvider: o.tracers, Contents: o.contents,
		OnWatch: o.watchConditions(name),
		Store:   store.Options{HotBytes: o.hotBytes, DetectMutation: o.detect},
	}); err != nil {
		return err
	}
	if c.client, err = client.New(client.Options{
		Config: cfg, Call: c.calls, Cache: c.cache, Scheme: o.scheme, Mapper: mapper, Logger: o.logger,
		FieldOwner: o.fieldOwner,
	}); err != nil {
		return err
	}
	return register(metrics, store.Collector(c.stores))
}

// directory returns the directory name for a cluster, relative to the directory of the first cluster.
func directory(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// stores returns every watched store, including those that callers acquired from the cache.
func (c *connection) stores() []*cache.Store {
	if c.cache == nil {
		return nil
	}
	return c.cache.Stores(schema.GroupVersionResource{})
}

// discover returns a mapper that asks the server at first use, and again for a kind that it does not know.
func (c *connection) discover(cfg *rest.Config, log *slog.Logger) (meta.RESTMapper, error) {
	life, end := context.WithCancel(context.Background())
	c.abandon = end
	// A server that does not answer cannot keep Run from returning.
	return discover.NewMapper(cfg, abandon.Transport{Next: c.calls.Connection(), Life: life}, log)
}

// during calls fn. If ctx ends meanwhile, it cancels the discovery that fn may wait for.
func (c *connection) during(ctx context.Context, fn func() error) error {
	if c.abandon != nil {
		release := context.AfterFunc(ctx, c.abandon)
		defer release()
	}
	return fn()
}

// needsNoService reports whether a store can be listed before this process is ready. For kinds that the process
// converts this may fail: the API server reaches the converter through a Service, which routes only to ready processes.
func (c *connection) needsNoService(st *cache.Store) bool {
	return !c.cache.Holds(st.Options().Kind.GroupKind())
}

func (c *connection) close() {
	if c.abandon != nil {
		c.abandon()
	}
	if c.client != nil {
		c.client.Close()
	}
	if c.calls != nil {
		c.calls.Close()
	}
}
