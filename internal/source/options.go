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

// Option changes a Config. It is the form in which the layers above let users choose.
type Option func(*Config)

// Namespaces restricts a source to these namespaces; without any it is not restricted.
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

// Shard restricts a source to the objects of some slots.
func Shard(set shard.Set) Option {
	return func(c *Config) { c.Shard, c.Sharding = &set, nil }
}

// ShardWith restricts a source to the objects of the slots that a Sharding holds, which may change.
func ShardWith(h *Sharding) Option {
	return func(c *Config) { c.Shard, c.Sharding = nil, h }
}

// EverySlot has a source hold all objects, whatever is shared by default: for what every replica needs, such as
// configuration, or objects that concern others of another namespace.
func EverySlot() Option { return ShardWith(nil) }

// PageSize is how many objects a page of a LIST has; negative: all at once.
func PageSize(n int) Option {
	return func(c *Config) { c.PageSize = n }
}

// WithEncoding is what to ask the server for.
func WithEncoding(e Encoding) Option {
	return func(c *Config) { c.Encoding = e }
}

// SilenceBudget is how long a watch may be silent before the server is asked.
func SilenceBudget(d time.Duration) Option {
	return func(c *Config) { c.SilenceBudget = d }
}

// BulkDeleteGuard is how many deletions of one list are believed without a second one; negative: any number.
func BulkDeleteGuard(n int) Option {
	return func(c *Config) { c.BulkDeleteGuard = n }
}

// NoWatchList makes a source use LIST only.
func NoWatchList() Option {
	return func(c *Config) { c.NoWatchList = true }
}
