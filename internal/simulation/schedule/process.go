package schedule

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A Lock is an object for leader election: a Lease, or a ConfigMap or Endpoints with annotation LeaderAnnotation.
type Lock struct {
	Resource schema.GroupResource
	Name     types.NamespacedName
}

// LeaderAnnotation holds who leads, if the lock is no Lease.
const LeaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// Process is one process of the subject. It is safe for concurrent use.
type Process struct {
	// Client reaches the services outside the cluster.
	Client *http.Client

	cancel context.CancelFunc

	mu     sync.Mutex
	dead   bool
	paused time.Time           // until then
	freeze func(time.Duration) // suspends the program, if that is not this one
	locked time.Time           // until then, it cannot write to a lock
	spared bool                // it has been suspended or deposed, so that it may end by itself
	locks  []Lock
	// expired counts the watches that have expired and have not been opened again, by resource and group.
	expired map[string]int
}

// OnSuspend sets the function that suspends the process for a time. freeze must not block.
func (p *Process) OnSuspend(freeze func(time.Duration)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freeze = freeze
}

// Locks returns the locks to which the process has written.
func (p *Process) Locks() []Lock {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.locks)
}

func (p *Process) writesLock(l Lock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.locks, l) {
		p.locks = append(p.locks, l)
	}
}

func (p *Process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill ends the process as SIGKILL does: from now on it reaches nothing. Its context ends, and its requests fail.
func (p *Process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cancel()
}

// expire records that a watch of a kind has expired.
func (p *Process) expire(kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expired == nil {
		p.expired = map[string]int{}
	}
	p.expired[kind]++
}

// takeExpired reports whether a watch of a kind has expired and was not opened again before.
func (p *Process) takeExpired(kind string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.expired[kind] == 0 {
		return false
	}
	p.expired[kind]--
	return true
}

// suspend holds all writes and watches of the process.
func (p *Process) suspend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.spared = time.Now().Add(d), true
	if p.freeze != nil {
		p.freeze(d)
	}
}

// depose makes all writes to locks fail.
func (p *Process) depose(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locked, p.spared = time.Now().Add(d), true
}

func (p *Process) isDeposed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.locked)
}

// resumed waits until the process is not suspended any more.
func (p *Process) resumed(done <-chan struct{}) error {
	for {
		p.mu.Lock()
		d := time.Until(p.paused)
		p.mu.Unlock()
		if d <= 0 {
			return nil
		}
		if err := sleep(done, d); err != nil {
			return err
		}
	}
}
