package dependent

import (
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
)

// memory is the cache of a controller about the children of each primary. It may be lost: a child without an entry is
// applied once, which changes nothing if the child is as desired.
type memory struct {
	mu  sync.Mutex
	all map[client.Key]*remembered // by primary
}

// remembered has the entries of the children of one primary. Only the fiber of the primary uses it.
type remembered struct {
	uid      types.UID
	children map[childKey]*child
	outsides map[int]*outside // by node
}

// child is the entry of one child.
type child struct {
	uid    types.UID
	want   sum                   // of the last applied object
	fields unique.Handle[string] // fields that the manager owns since then; usually the same for all children of a kind
	has    sum                   // of the values that the API server stored in these fields
	seen   string                // a resource version at which the child was as desired

	applied time.Time // time of the last apply
	again   int       // consecutive changes by other clients soon after an apply
	since   time.Time // when the child was first seen not ready; zero while it is ready
}

// of returns the entries of a primary. The caller may change them while it works on the primary.
func (m *memory) of(k client.Key, uid types.UID) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.all[k]
	if r == nil || r.uid != uid {
		if m.all == nil {
			m.all = map[client.Key]*remembered{}
		}
		r = &remembered{uid: uid, children: map[childKey]*child{}, outsides: map[int]*outside{}}
		m.all[k] = r
	}
	return r
}

// forget removes the entries of a primary.
func (m *memory) forget(k client.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, k)
}

// A client that changes a child within contentionWindow after an apply contends for it. After patience such changes the
// child is restored with back-off.
const (
	contentionWindow = 5 * time.Minute
	patience         = 3
)

// entry returns the entry of this incarnation of a child; nil if there is none.
func (r *remembered) entry(at childKey, is client.Object) *child {
	if c := r.children[at]; c != nil && c.uid == is.GetUID() {
		return c
	}
	return nil
}

// holds reports whether a child is known to have all desired fields.
func (c *child) holds(w *want) (bool, error) {
	if c == nil || c.want != w.sum {
		return false, nil
	}
	if c.seen == w.is.GetResourceVersion() {
		return true, nil
	}
	is, err := content(w.is)
	if err != nil {
		return false, err
	}
	want, err := w.content()
	if err != nil {
		return false, err
	}
	has, err := sumOwned(c.fields.Value(), is, want)
	if err != nil || has != c.has {
		return false, err
	}
	c.seen = w.is.GetResourceVersion()
	return true, nil
}

// pause returns the back-off before a contended child is restored.
func (c *child) pause() time.Duration {
	n := c.again - patience
	if n < 0 {
		return 0
	}
	return min(time.Second<<min(n, 9), contentionWindow)
}
