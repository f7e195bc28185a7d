package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/observe"
)

// TestDisturbedRun runs runtimes of random parts, of which some fail, panic, end their goroutine or do not stop, and
// ends them at any moment by the context, by a lost leadership, or not at all. Run returns in time with everything that
// has failed, names what goes on, and leaves nothing behind.
func TestDisturbedRun(t *testing.T) {
	t.Parallel()
	seed.Play(t, disturbedRuns, func(t *testing.T, seed uint64) {
		t.Parallel()
		bubble(t, func(t *testing.T, s *apiserver.Server) {
			d := &disturbedRun{t: t, server: s, rnd: rand.New(rand.NewPCG(seed, 0)), running: map[string]bool{}}
			d.play()
		})
	})
}

const disturbedRuns = 30

type disturbedRun struct {
	t      *testing.T
	server *apiserver.Server
	rnd    *rand.Rand
	log    []string

	mu      sync.Mutex
	failed  []error // what tasks have returned or panicked with
	running map[string]bool
	slow    bool      // a task may not stop in time, and end before Run returns all the same
	ending  time.Time // when the first cause of an end came
}

func (d *disturbedRun) chance(n int) bool { return d.rnd.IntN(n) == 0 }

func (d *disturbedRun) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.rnd.Int64N(int64(limit)))
}

func (d *disturbedRun) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

// ends notes that something has happened at which Run has to return.
func (d *disturbedRun) ends() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending.IsZero() {
		d.ending = time.Now()
	}
}

func (d *disturbedRun) play() {
	for i := range d.rnd.IntN(5) {
		put(d.t, d.server, fmt.Sprint("o", i))
	}
	term, lose := context.WithCancel(context.Background())
	defer lose()
	var options []fairlead.Option
	leading := d.chance(3)
	if leading {
		options = append(options, fairlead.WithLeadership(&leadership{term, term.Err}))
	}
	degraded := d.chance(2)
	if degraded {
		options = append(options, fairlead.WithDegraded())
	}
	if d.chance(3) {
		d.server.On(apiserver.Match{Resource: "configmaps", Times: 1 + d.rnd.IntN(5)}, apiserver.Delay(d.upTo(3*time.Second)))
	}
	rt := fairlead.New(d.server.Config(), options...)
	hosts := []*fairlead.Host{rt.Host}
	if d.chance(2) {
		hosts = append(hosts, rt.Join("east", d.server.Config()))
	}
	broken := false // some source cannot be started
	for n, h := range hosts {
		for i := range 1 + d.rnd.IntN(3) {
			broken = d.source(h, observe.Selector(fmt.Sprint("s", n, i))) || broken
		}
		for i := range d.rnd.IntN(4) {
			d.task(h, fmt.Sprintf("task-%d-%d", n, i))
		}
	}
	d.note("leading %v, degraded %v, broken %v", leading, degraded, broken)
	if broken && !degraded {
		d.ends() // at once, but for sources that take their time
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- rt.Run(ctx) }()
	lost := false
	select {
	case <-time.After(d.upTo(10 * time.Second)):
		if d.ends(); leading && d.chance(2) {
			d.note("leadership is lost")
			lost = true
			lose()
		} else {
			d.note("cancelled")
			cancel()
		}
	case err := <-done:
		done <- err
	}
	err := <-done
	d.check(err, lost, broken && !degraded)
	time.Sleep(time.Hour) // what would not stop has stopped
	synctest.Wait()
	if n := d.server.Log().Open(apiserver.Match{}); n != 0 {
		d.t.Errorf("%d requests are open", n)
	}
	if d.t.Failed() {
		d.t.Logf("%s\nRun: %v", strings.Join(d.log, "\n"), err)
	}
}

// longest is how long Run may take to return: sources that are found out, tasks, observers with drain and grace,
// caches.
const longest = 3*time.Second + 20*time.Second + 5*time.Second + 5*time.Second + 5*time.Second +
	10*time.Second

func (d *disturbedRun) check(err error, lost, broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending.IsZero() {
		d.t.Errorf("it ended for no reason: %v", err)
	} else if took := time.Since(d.ending); took > longest {
		d.t.Errorf("it took %v to return", took)
	}
	for _, f := range d.failed {
		if !errors.Is(err, f) && !strings.Contains(fmt.Sprint(err), f.Error()) {
			d.t.Errorf("what failed is not told: %v", f)
		}
	}
	for name := range d.running {
		if !strings.Contains(fmt.Sprint(err), name) {
			d.t.Errorf("it is not told that %s goes on", name)
		}
	}
	if lost && !errors.Is(err, fairlead.ErrNotLeading) {
		d.t.Errorf("the lost leadership is not told")
	}
	if err != nil && len(d.failed) == 0 && len(d.running) == 0 && !d.slow && !lost && !broken {
		d.t.Errorf("nothing has failed, and Run returned: %v", err)
	}
}

// enter notes that user code runs; what it returns notes that it does no more.
func (d *disturbedRun) enter(name string) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[name] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.running, name)
	}
}

// source declares a source with an observer, and says whether it cannot be started.
func (d *disturbedRun) source(h observe.Host, s observe.Selector) (broken bool) {
	kind, wait := d.rnd.IntN(8), d.upTo(3*time.Second)
	d.note("source %s of kind %d after %v", s, kind, wait)
	observe.SourceFunc[corev1.ConfigMap](h, s, func(ctx context.Context) ([]cache.Option, error) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch kind {
		case 0:
			return nil, errors.New("cannot find out")
		case 1:
			runtime.Goexit()
		case 2:
			panic("oh no")
		}
		return nil, nil
	})
	stuck := time.Duration(0)
	if d.chance(3) {
		stuck = d.upTo(20 * time.Second)
	}
	deaf := d.chance(2)
	name := fmt.Sprint("observer-", s)
	d.note("%s takes %v, deaf %v", name, stuck, deaf)
	observe.On(h, s, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
		if stuck == 0 {
			return nil
		}
		defer d.enter(name)()
		if deaf {
			ctx = context.WithoutCancel(ctx)
		}
		select {
		case <-time.After(stuck):
		case <-ctx.Done():
		}
		return nil
	}, observe.Name(name))
	return kind < 3
}

// task adds a task that ends by itself, is told to, or does not stop for a while.
func (d *disturbedRun) task(c *fairlead.Host, name string) {
	kind, after, linger := d.rnd.IntN(6), d.upTo(15*time.Second), d.upTo(30*time.Second)
	d.note("%s of kind %d after %v, lingers %v", name, kind, after, linger)
	d.slow = d.slow || kind == 5 && linger > 20*time.Second
	c.Add(name, func(ctx context.Context) error {
		leave := d.enter(name)
		select {
		case <-time.After(after):
		case <-ctx.Done():
			if kind == 5 {
				time.Sleep(linger)
			}
			leave()
			return context.Cause(ctx)
		}
		failure := fmt.Errorf("%s has failed", name)
		if kind == 2 {
			failure = errors.New(name + ": it ended its goroutine")
		}
		d.mu.Lock()
		delete(d.running, name)
		if kind < 3 {
			d.failed = append(d.failed, failure)
		}
		d.mu.Unlock()
		switch kind {
		case 0:
			d.ends()
			return failure
		case 1:
			d.ends()
			panic(failure)
		case 2:
			d.ends()
			runtime.Goexit()
		}
		return nil
	})
}
