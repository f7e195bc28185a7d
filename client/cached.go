package client

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// cachedObject is the object of a write as the stores have it. It does not trust a state that may be older than one
// that the caller has seen.
type cachedObject struct {
	stores *stores
	k      *kind
	key    Key
	seen   [2]metav1.Object // states that the caller has seen, for their uid and version; may be nil
}

// record returns the cached object, or its metadata if metadata is true. It returns nil if the cache has none or if
// reads must ask the server. The record may be older than a state that the caller has seen.
func (c *cachedObject) record(metadata bool) *cache.Record {
	r, _ := c.stores.find(c.k, c.key, metadata)
	return r
}

// anyContent returns the cached object, perhaps only its metadata; nil if it may be outdated.
func (c *cachedObject) anyContent() *cache.Record { return c.trusted(c.record(true)) }

// whole returns the cached object with all fields that the store keeps; nil if it may be outdated.
func (c *cachedObject) whole() *cache.Record { return c.trusted(c.record(false)) }

func (c *cachedObject) trusted(r *cache.Record) *cache.Record {
	if r != nil && c.trusts(r) {
		return r
	}
	return nil
}

// trusts reports whether a record is known not to be older than a state that the caller has seen.
func (c *cachedObject) trusts(r *cache.Record) bool {
	return !slices.ContainsFunc(c.seen[:], func(o metav1.Object) bool {
		return o != nil && outdated(r, o.GetUID(), o.GetResourceVersion())
	})
}

// unordered reports whether versions of the kind cannot be ordered. Then every write must be locked.
func (c *cachedObject) unordered() bool {
	st := c.stores.complete(c.k)
	return st != nil && pending.Unordered(st)
}

// provesAbsence reports whether an object that the stores lack does not exist, as far as their watch has come.
func (c *cachedObject) provesAbsence() bool {
	st := c.stores.covering(c.k, c.key.Namespace)
	return st != nil && knows(st, c.key.Namespace)
}

// outdated reports whether a record may be older than a state with uid and version: it is of another incarnation, or
// its version is not known to be the same or newer. An empty uid or version is unknown.
func outdated(r *cache.Record, uid types.UID, version string) bool {
	if version == "" {
		return uid != "" && uid != r.UID()
	}
	if version == r.Version() {
		return false
	}
	order, ok := resourceversion.Compare(r.Version(), version)
	return !ok || order < 0
}
