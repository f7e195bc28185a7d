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

// TestDisturbedRun runs runtimes of random parts. Some parts fail, panic, end their goroutine or do not stop. The run
// ends at a random moment by its context, by a lost leadership, or not at all. Run returns in time with all failures,
// names the parts that still run, and leaves nothing behind.
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
	failed  []error // errors that tasks have returned or panicked with
	running map[string]bool
	slow    bool      // a task may stop late, but before Run returns
	ending  time.Time // time of the first cause of an end
}

func (d *disturbedRun) chance(n int) bool { return d.rnd.IntN(n) == 0 }

func (d *disturbedRun) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.rnd.Int64N(int64(limit)))
}

func (d *disturbedRun) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

// ends records an event at which Run has to return.
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
	broken := false // a source cannot be started
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
		d.ends() // at once, except for slow sources
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
	time.Sleep(time.Hour) // the late tasks have stopped
	synctest.Wait()
	if n := d.server.Log().Open(apiserver.Match{}); n != 0 {
		d.t.Errorf("%d open requests", n)
	}
	if d.t.Failed() {
		d.t.Logf("%s\nRun: %v", strings.Join(d.log, "\n"), err)
	}
}

// longest is the longest duration of Run after its end: functions of sources, tasks, observers with drain and grace,
// caches.
const longest = 3*time.Second + 20*time.Second + 5*time.Second + 5*time.Second + 5*time.Second +
	10*time.Second

func (d *disturbedRun) check(err error, lost, broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending.IsZero() {
		d.t.Errorf("Run ended without a cause: %v", err)
	} else if took := time.Since(d.ending); took > longest {
		d.t.Errorf("Run took %v to return", took)
	}
	for _, f := range d.failed {
		if !errors.Is(err, f) && !strings.Contains(fmt.Sprint(err), f.Error()) {
			d.t.Errorf("the error lacks the failure %v", f)
		}
	}
	for name := range d.running {
		if !strings.Contains(fmt.Sprint(err), name) {
			d.t.Errorf("the error does not name %s, which still runs", name)
		}
	}
	if lost && !errors.Is(err, fairlead.ErrNotLeading) {
		d.t.Errorf("the error lacks the lost leadership")
	}
	if err != nil && len(d.failed) == 0 && len(d.running) == 0 && !d.slow && !lost && !broken {
		d.t.Errorf("Run returned %v without a failure", err)
	}
}

// enter records that user code runs. The returned function records its end.
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

// source declares a source with an observer, and reports whether it cannot be started.
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
			return nil, errors.New("no configuration")
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

// task adds a task that ends by itself, ends when it is stopped, or continues for a while.
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
