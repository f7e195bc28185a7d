package source

import (
	"log/slog"
	"math/rand/v2"
	"time"

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
