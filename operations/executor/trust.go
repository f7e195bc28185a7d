package executor

import (
	"slices"
	"sync"
)

// trust tracks the namespaces in which a call can be recorded after it has started. It is safe for concurrent use.
type trust struct {
	mu      sync.Mutex
	keys    bool     // the API server has stored the keys of the last write that had some
	failing []string // namespaces whose last status write has failed, sorted
}

// in reports whether calls of a namespace may be made before they are recorded.
func (t *trust) in(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, failing := slices.BinarySearch(t.failing, namespace)
	return t.keys && !failing
}

// failed records that a status write has failed, for another reason than a conflict or a deletion.
func (t *trust) failed(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, failing := slices.BinarySearch(t.failing, namespace); !failing {
		t.failing = slices.Insert(t.failing, at, namespace)
	}
}

// forget forgets failed writes of the namespaces that of selects.
func (t *trust) forget(of func(namespace string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = slices.DeleteFunc(t.failing, of)
}

// written records a successful status write with that number of keys. kept says whether the API server has stored
// them.
func (t *trust) written(namespace string, keys int, kept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if keys > 0 {
		t.keys = kept
	}
	if at, failing := slices.BinarySearch(t.failing, namespace); failing {
		t.failing = slices.Delete(t.failing, at, at+1)
	}
}
