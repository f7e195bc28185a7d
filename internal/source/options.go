package source

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/shard"
)

// Defaults of a Config.
const (
	DefaultPageSize            = 500
	DefaultSilenceBudget       = 90 * time.Second
	DefaultListProgressTimeout = 30 * time.Second
	DefaultMaxWatch            = 15 * time.Minute
	DefaultBackoffBase         = 500 * time.Millisecond
	DefaultBackoffCap          = 30 * time.Second
	DefaultBulkDeleteGuard     = 100
)

func (c Config) withDefaults() Config {
	duration := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	duration(&c.SilenceBudget, DefaultSilenceBudget)
	duration(&c.ListProgressTimeout, DefaultListProgressTimeout)
	duration(&c.MaxWatch, DefaultMaxWatch)
	duration(&c.BackoffBase, DefaultBackoffBase)
	duration(&c.BackoffCap, DefaultBackoffCap)
	if c.PageSize == 0 {
		c.PageSize = DefaultPageSize
	}
	if c.BulkDeleteGuard == 0 {
		c.BulkDeleteGuard = DefaultBulkDeleteGuard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

// logger returns a Logger whose attributes distinguish the watches of one resource.
func (c *Config) logger(namespace string) *slog.Logger {
	attrs := []any{"resource", c.Resource.String(), "namespace", namespace}
	for _, sel := range []struct{ name, selector string }{
		{"labels", c.LabelSelector}, {"fields", c.FieldSelector},
	} {
		if sel.selector != "" {
			attrs = append(attrs, sel.name, sel.selector)
		}
	}
	if c.Metadata {
		attrs = append(attrs, "content", "metadata")
	}
	return c.Logger.With(attrs...)
}

// excerpt returns the beginning of b, or "" with NoExcerpts.
func (c *Config) excerpt(b []byte) string {
	if c.NoExcerpts {
		return ""
	}
	return excerpt(b)
}

// watchTimeout returns the timeout to request: one to two thirds of MaxWatch, at random, so that watches that start
// together end at different times.
func (c *Config) watchTimeout() time.Duration {
	return c.MaxWatch/3 + time.Duration(c.Rand()*float64(c.MaxWatch)/3)
}

// Option modifies a Config. Higher layers expose these choices to users as Options.
type Option func(*Config)

// Namespaces restricts a source to these namespaces. Without arguments it is not restricted.
func Namespaces(namespaces ...string) Option {
	return func(c *Config) { c.Namespaces = namespaces }
}

// Labels restricts a source to objects whose labels match the selector.
func Labels(selector string) Option {
	return func(c *Config) { c.LabelSelector = selector }
}

// Fields restricts a source to objects whose fields match the selector.
func Fields(selector string) Option {
	return func(c *Config) { c.FieldSelector = selector }
}

// Shard restricts a source to the objects of the slots in set.
func Shard(set shard.Set) Option {
	return func(c *Config) { c.Shard, c.Sharding = &set, nil }
}

// ShardWith restricts a source to the objects of the slots that h holds, which may change.
func ShardWith(h *Sharding) Option {
	return func(c *Config) { c.Shard, c.Sharding = nil, h }
}

// EverySlot makes a source hold all objects, whatever the default sharding. Every replica may need them, such as
// configuration or objects that refer to other namespaces.
func EverySlot() Option { return ShardWith(nil) }

// PageSize sets the number of objects per page of a LIST; negative: all in one page.
func PageSize(n int) Option {
	return func(c *Config) { c.PageSize = n }
}

// WithEncoding sets the encoding to request.
func WithEncoding(e Encoding) Option {
	return func(c *Config) { c.Encoding = e }
}

// SilenceBudget sets how long a watch may be silent before the source asks the server for its version.
func SilenceBudget(d time.Duration) Option {
	return func(c *Config) { c.SilenceBudget = d }
}

// BulkDeleteGuard sets how many deletions one list may cause without a confirming list; negative: any number.
func BulkDeleteGuard(n int) Option {
	return func(c *Config) { c.BulkDeleteGuard = n }
}

// NoWatchList makes a source use only LIST, never the initial events of a watch.
func NoWatchList() Option {
	return func(c *Config) { c.NoWatchList = true }
}

// Config configures a Source. Resource and one of Connection and REST are required. The zero value of every other field
// is valid.
type Config struct {
	// Connection sends the requests. Sources of one cluster should share it. If it is nil, the source makes its own
	// from REST and closes it when Run returns.
	Connection *connection.Conn
	REST       *rest.Config
	Budget     connection.Budget // of the requests

	Resource   schema.GroupVersionResource
	Namespaces []string // nil or empty: all namespaces with one watch; else one scope per namespace
	// Selectors restrict the source to matching objects. Empty selectors match all.
	LabelSelector string // in the format of labels.Selector.String
	FieldSelector string // in the format of fields.Selector.String

	// Shard restricts the source to the objects of some slots; nil: all objects. It may be empty. The server is asked
	// for these objects only (KEP-5866), and the source filters the response by the same hash. The Sink must implement
	// Sharded. Content from an earlier run is listed again.
	Shard *shard.Set
	// Sharding is a set of slots that several sources share and that may change while they run. It excludes Shard.
	Sharding *Sharding

	// Encoding is the encoding to request. A server without protobuf for the resource responds in JSON: see
	// Object.Encoding.
	Encoding Encoding
	// Metadata requests only the metadata of objects, in protobuf if the server supports it, whatever Encoding is. The
	// source removes any other content: see Object.KeepMetadata. Quarantined objects carry no other bytes either.
	Metadata bool

	// NoExcerpts keeps content of objects out of errors, logs and statuses, and omits the bytes of quarantined objects.
	// It is for a Sink that stores only parts of an object.
	NoExcerpts bool

	PageSize    int  // objects per page of a LIST; 0: 500, negative: one page
	NoWatchList bool // use LIST, never the initial events of a watch

	SilenceBudget       time.Duration // time without event or bookmark before a probe; default 90s
	ListProgressTimeout time.Duration // time without a byte of a list; default 30s
	MaxWatch            time.Duration // client-side lifetime of a watch; default 15m
	BackoffBase         time.Duration // upper bound of the first wait; default 500ms
	BackoffCap          time.Duration // upper bound of every wait; default 30s

	// BulkDeleteGuard is the number of deletions above which a list needs a second, consistent list to confirm it.
	// 0: 100; negative: never.
	BulkDeleteGuard int
	// TrustEmptyList accepts an empty list although objects are known. Otherwise a second list must confirm it.
	TrustEmptyList bool

	Logger *slog.Logger // nil: none
	// TracerProvider creates a span for each list and for the start of each watch. The default is no spans.
	TracerProvider trace.TracerProvider
	Rand           func() float64 // jitter, in [0,1); nil: math/rand/v2
}

// Selectors restrict a source to matching objects, like the selectors in Config.
type Selectors struct{ Label, Field string }

// sharding returns the Sharding of the Config, or nil if the source holds all objects.
func (c *Config) sharding() (*Sharding, error) {
	h := c.Sharding
	switch {
	case h != nil && c.Shard != nil:
		return nil, errors.New("both Shard and Sharding are given")
	case c.Shard != nil:
		h = NewSharding(c.Shard.Layout())
		h.set, h.turn = *c.Shard, 1
	case h == nil:
		return nil, nil
	}
	return h, h.layout.Check()
}

// ShardName returns a short text for the division of objects, such as "namespace/64". With Config.Shard it includes the
// slots: "namespace/64: 0-15". It returns "" if the source holds all objects.
func (c *Config) ShardName() string {
	switch {
	case c.Sharding != nil:
		return c.Sharding.String()
	case c.Shard != nil:
		l := c.Shard.Layout()
		return fmt.Sprintf("%s/%d: %s", l.By, l.Len(), c.Shard)
	}
	return ""
}
