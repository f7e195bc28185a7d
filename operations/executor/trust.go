package executor

import (
	"slices"
	"sync"
)

// trust says in which namespaces what has to be recorded of a call can be recorded after it. It is safe for concurrent
// use.
type trust struct {
	mu      sync.Mutex
	keys    bool     // the API server has kept the keys of calls when it was last asked to
	failing []string // namespaces in which the last write of a status has failed, sorted
}

// in tells whether calls may be made before they are recorded.
func (t *trust) in(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, failing := slices.BinarySearch(t.failing, namespace)
	return t.keys && !failing
}

// failed notes that a status could not be written, for another reason than a conflict or a deletion.
func (t *trust) failed(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, failing := slices.BinarySearch(t.failing, namespace); !failing {
		t.failing = slices.Insert(t.failing, at, namespace)
	}
}

// forget forgets what was found out about some namespaces.
func (t *trust) forget(of func(namespace string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = slices.DeleteFunc(t.failing, of)
}

// written notes that a status with so many keys was written, and whether they were kept.
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
