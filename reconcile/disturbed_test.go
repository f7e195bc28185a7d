package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	requests "github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// disturber disturbs a third of a process's requests about single gateways. It drops the request or its response, or
// changes the object as another client just before.
type disturber struct {
	foreign *client.Client

	seed uint64

	mu        sync.Mutex
	sent      map[string]int // requests by object
	off       bool
	all, hurt int
	log       []string
}

func newDisturber(b *bench, seed uint64) *disturber {
	h := b.process()
	b.closers = append(b.closers, func() { h.Client().Close() })
	return &disturber{foreign: h.Client(), seed: seed, sent: map[string]int{}}
}

// disturbed is a process whose requests are disturbed. After its death none of them arrives.
func (b *bench) disturbed(d *disturber, dead func() bool, policy requests.Policy) *testbed.Host {
	cfg := disturb.Config(b.server.Config(), func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if dead() {
			return nil, disturb.ErrLost
		}
		return d.roundTrip(r, next)
	})
	return testbed.NewHostWith(b.t, cfg, testbed.Mapper(testbed.Resources()), policy)
}

func (d *disturber) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	_, name, ok := strings.Cut(r.URL.Path, "/gateways/")
	if !ok {
		return next.RoundTrip(r)
	}
	name, _, _ = strings.Cut(name, "/")
	d.mu.Lock()
	d.sent[name]++
	nth := d.sent[name]
	fault := disturb.Choose(d.seed, name, nth)
	if d.off {
		fault = disturb.None
	}
	d.all++
	if fault != disturb.None {
		d.hurt++
	}
	d.log = append(d.log, fmt.Sprintf("%s %s %s %s", time.Since(epoch), name,
		r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "/"):], fault))
	d.mu.Unlock()
	return fault.RoundTrip(r, next, func() { d.touch(r.Context(), name, nth) })
}

// touch changes an existing object as another client would.
func (d *disturber) touch(ctx context.Context, name string, n int) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, n)
	_ = d.foreign.Patch(ctx, testbed.New("a", name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (d *disturber) calm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
}

// of returns the requests for an object.
func (d *disturber) of(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lines []string
	for _, line := range d.log {
		if strings.Contains(line, " "+name) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// requested returns the number of requests of the process.
func (d *disturber) requested() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all
}

// impatient abandons a request early, so that failures reach the caller.
var impatient = requests.Policy{
	Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond,
	Budget: &requests.Budget{PerSecond: 1000},
}

// terms is a leadership that the test gives and takes.
type terms struct {
	mu    sync.Mutex
	term  context.Context
	end   context.CancelCauseFunc
	begun chan struct{}
	busy  sync.WaitGroup
}

var errLostLease = errors.New("the lease was lost")

func newTerms() *terms { return &terms{begun: make(chan struct{})} }

func (l *terms) give() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil {
		l.term, l.end = context.WithCancelCause(context.Background())
		close(l.begun)
	}
}

// take ends the term and waits for its work.
func (l *terms) take() {
	l.mu.Lock()
	if l.term != nil {
		l.end(errLostLease)
		l.term, l.begun = nil, make(chan struct{})
	}
	l.mu.Unlock()
	l.busy.Wait()
}

// Lead implements reconcile.Leadership.
func (l *terms) Lead(ctx context.Context) (context.Context, func(), error) {
	for {
		l.mu.Lock()
		term, begun := l.term, l.begun
		if term != nil {
			l.busy.Add(1)
			l.mu.Unlock()
			return term, l.busy.Done, nil
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-begun:
		}
	}
}

// Fence implements reconcile.Leadership.
func (l *terms) Fence(term context.Context) error { return context.Cause(term) }

var _ reconcile.Leadership = (*terms)(nil)
