package admission

import (
	"errors"
	"sync"
)

// readiness records whether the hooks are served and configured.
type readiness struct {
	done chan struct{} // closed by served

	mu      sync.Mutex
	problem error // nil once the hooks are served
}

func newReadiness() *readiness {
	return &readiness{done: make(chan struct{}), problem: errors.New("they are not served yet")}
}

// failed records why the hooks are not served yet.
func (r *readiness) failed(err error) { r.set(err) }

// served records that the hooks are served and configured. It must be called once.
func (r *readiness) served() {
	r.set(nil)
	close(r.done)
}

func (r *readiness) set(problem error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = problem
}

// err returns the reason why the hooks are not served yet, or nil.
func (r *readiness) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}
