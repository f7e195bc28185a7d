package dependent

import (
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
)

// memory is what a controller remembers of the children of each primary. All of it can be lost: a child of which
// nothing is known is applied once, which changes nothing if it is as it should be.
type memory struct {
	mu  sync.Mutex
	all map[client.Key]*remembered // by primary
}

// remembered is what is known of the children of one primary. It belongs to the fiber that works on that.
type remembered struct {
	uid      types.UID
	children map[childKey]*child
	outsides map[int]*outside // by node
}

type childKey struct {
	node int
	key  client.Key
}

// child is what is remembered of one.
type child struct {
	uid    types.UID
	want   sum                   // of what was applied last
	fields unique.Handle[string] // that the manager owns since; the same for all children of a kind
	has    sum                   // what the API server made of them
	seen   string                // a version in which all of it was as it should be

	applied time.Time // when it was put right last
	again   int       // how often in a row somebody had changed it soon after
	since   time.Time // when it was first seen not to be ready; zero while it is
}

// of returns what is remembered of the children of a primary, which the caller may change while it works on it.
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

// forget drops what is remembered of a primary.
func (m *memory) forget(k client.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, k)
}

// Somebody who changes a child within contentionWindow after it was put right contends for it. After patience such
// changes it is put right with back-off.
const (
	contentionWindow = 5 * time.Minute
	patience         = 3
)

// pause is how long a child that is contended for is left as it is.
func (c *child) pause() time.Duration {
	n := c.again - patience
	if n < 0 {
		return 0
	}
	return min(time.Second<<min(n, 9), contentionWindow)
}
