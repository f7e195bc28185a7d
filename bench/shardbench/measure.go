package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/bench/internal/proc"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/source"
)

// result is one measurement for one number of replicas.
type result struct {
	gate      bool
	n         int
	sync      time.Duration
	balanced  time.Duration // until the boundaries of the slots changed for the last time
	changes   int64         // of the boundaries
	shares    []share
	updates   int
	server    time.Duration // processor time of kube-apiserver during the updates
	serverRSS int64         // bytes, after the updates
	takeovers []takeover
	rewritten float64 // objects written during the takeovers; NaN: unknown
}

// share is the part of a result that one replica has.
type share struct {
	slots, objects         int
	before, after          int64 // resident bytes before the start and at rest
	objectsRead, bytesRead int64 // from the wire until in sync
	// During the updates.
	received, given, observed, bytes int64
	cpu                              time.Duration
}

// takeover is a change of members.
type takeover struct {
	what  string
	slots time.Duration // until each slot has one live holder
	whole time.Duration // until the observers have received everything
	// Objects and bytes that the live members have read from the wire for it.
	objectsRead, bytesRead int64
}

// bench is a control plane with the objects.
type bench struct {
	o        options
	dir      string
	units    units
	expect   []int // objects by unit
	progress func(string, ...any)

	cluster *cluster.Cluster
	db      *etcd
	groups  int
}

// measure returns the results. After an error it also returns the results so far.
func measure(ctx context.Context, o options, progress func(string, ...any)) (results []result, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// The path of etcd's socket must be short, so the directory is not below one of the caller.
	dir, err := os.MkdirTemp("", "shardbench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	b := &bench{o: o, dir: dir, units: units{o.layout, o.namespaces}, progress: progress}
	b.expect = b.units.counts(o.objects)
	defer b.stop()
	for i := range o.rounds {
		for _, gate := range o.gates {
			if err := b.start(ctx, gate); err != nil {
				return results, err
			}
			if len(results) == 0 && i == 0 {
				if err := b.fill(ctx); err != nil {
					return results, fmt.Errorf("cannot write the objects: %w", err)
				}
			}
			for _, n := range o.processes {
				r, err := b.play(ctx, gate, n)
				if len(r.shares) > 0 { // an error may follow some measurements
					results = append(results, r)
				}
				if err != nil {
					return results, fmt.Errorf("feature %s, %d replicas: %w", onOff(gate), n, err)
				}
			}
			b.stop()
		}
	}
	return results, nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func (b *bench) start(ctx context.Context, gate bool) (err error) {
	b.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: b.dir, UnsafeNoFsync: true, FeatureGates: map[string]bool{"ShardedListAndWatch": gate},
		EtcdFlags: []string{"--quota-backend-bytes", fmt.Sprint(int64(8) << 30)}, StartTimeout: b.o.limit,
		Progress: os.Stderr,
	})
	if err == nil {
		b.db = openEtcd(b.cluster)
		b.progress("control plane started, feature %s", onOff(gate))
	}
	return err
}

func (b *bench) stop() {
	if b.cluster != nil {
		b.db.close()
		b.cluster.Stop()
		b.cluster = nil
	}
}

// fill writes the objects while the API server is stopped, so that it does not watch them.
func (b *bench) fill(ctx context.Context) error {
	if err := b.cluster.StopAPIServer(ctx); err != nil {
		return err
	}
	if err := fill(ctx, b.o, b.db); err != nil {
		return err
	}
	b.progress("%d objects written", b.o.objects)
	return b.cluster.StartAPIServer(ctx)
}

// play measures n replicas.
func (b *bench) play(ctx context.Context, gate bool, n int) (r result, err error) {
	b.groups++
	w := &world{bench: b, group: fmt.Sprintf("bench-%d", b.groups)}
	defer w.end()
	r = result{gate: gate, n: n, updates: b.o.updates, rewritten: math.NaN()}
	for range n {
		m, err := w.make(ctx)
		if err != nil {
			return r, err
		}
		w.live = append(w.live, m)
	}
	began := time.Now()
	for _, m := range w.live {
		if err := m.begin(); err != nil {
			return r, err
		}
	}
	if _, r.sync, err = w.inSync(ctx, began, true); err != nil {
		return r, fmt.Errorf("cannot sync: %w", err)
	}
	if b.o.balance && n > 1 {
		if r.balanced, r.changes, err = w.balanced(ctx, began); err != nil {
			return r, fmt.Errorf("cannot wait for other boundaries: %w", err)
		}
	}
	if err := pause(ctx, b.o.settle); err != nil {
		return r, err
	}
	for _, m := range w.live {
		s, err := m.ask("rest")
		if err != nil {
			return r, err
		}
		objects := 0
		for _, n := range s.Observed {
			objects += int(n)
		}
		r.shares = append(r.shares, share{
			slots: len(s.Held), objects: objects, before: m.before, after: s.Resident,
			objectsRead: s.Counters.WireObjects, bytesRead: s.Counters.WireBytes,
		})
	}
	b.progress("feature %s, %d replicas: in sync after %.2f s", onOff(gate), n, r.sync.Seconds())
	if err := w.update(ctx, &r); err != nil {
		return r, fmt.Errorf("cannot measure updates: %w", err)
	}
	b.progress("feature %s, %d replicas: %d updates", onOff(gate), n, r.updates)
	if n > 1 && b.o.takeovers {
		if err := w.takeovers(ctx, &r); err != nil {
			return r, err
		}
	}
	return r, w.leave()
}

// update patches distinct objects and waits until all changes have been observed.
func (w *world) update(ctx context.Context, r *result) error {
	clients, err := kubernetes.NewForConfig(w.cluster.Config())
	if err != nil {
		return err
	}
	rest := clients.CoreV1().RESTClient()
	pid, err := proc.Child("kube-apiserver")
	if err != nil {
		return err
	}
	before, err := w.all("stats")
	if err != nil {
		return err
	}
	_, _, used, err := proc.Stat(pid)
	if err != nil {
		return err
	}
	which := rand.New(rand.NewPCG(uint64(w.groups), 7)).Perm(w.o.objects)[:w.o.updates]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k >= len(which) {
					return
				}
				i := which[k]
				body := fmt.Sprintf(`{"metadata":{"annotations":{"bench":"%s-%d"}}}`, w.group, k)
				if err := rest.Patch(types.MergePatchType).Resource(w.o.kind).Namespace(w.o.namespaces.of(i)).
					Name(nameOf(i)).Body([]byte(body)).Do(ctx).Error(); err != nil {
					cancel(err)
				}
			}
		})
	}
	writers.Wait()
	var after []stats
	err = w.poll(ctx, func() (bool, error) {
		if after, err = w.all("stats"); err != nil {
			return false, err
		}
		return counted(before, after, int64(len(which)), r.gate), nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	_, _, now, err := proc.Stat(pid)
	if err != nil {
		return err
	}
	r.server, r.serverRSS = now-used, proc.Resident(pid)
	for i := range after {
		s, a, b := &r.shares[i], &after[i].Counters, &before[i].Counters
		s.received, s.bytes = a.WireEvents-b.WireEvents, a.WireBytes-b.WireBytes
		s.given = s.received - (a.FilteredEvents - b.FilteredEvents)
		s.observed = after[i].Events - before[i].Events
		s.cpu = after[i].CPU - before[i].CPU
	}
	return nil
}

// counted reports whether the observers have received n updates and the sources have counted them. A source publishes
// its counters only after it has handed on a batch, so an observer may be ahead of them. If kube-apiserver does not
// filter, each source receives every update.
func counted(before, after []stats, n int64, filtered bool) bool {
	var received, observed int64
	for i := range after {
		got := after[i].Counters.WireEvents - before[i].Counters.WireEvents
		if !filtered && got < n {
			return false
		}
		received += got
		observed += after[i].Events - before[i].Events
	}
	return observed >= n && received >= n
}

// takeovers ends members in each possible way and starts replacements.
func (w *world) takeovers(ctx context.Context, r *result) error {
	revision, err := w.cluster.Revision(ctx)
	if err != nil {
		return err
	}
	for _, way := range []struct {
		name string
		sign syscall.Signal
	}{{"SIGTERM", syscall.SIGTERM}, {"SIGKILL", syscall.SIGKILL}, {"SIGSTOP", syscall.SIGSTOP}} {
		m := w.part()
		if err := w.takeover(ctx, r, way.name, false, func() error { return m.signal(way.sign) }); err != nil {
			return err
		}
		again, next := "joins after "+way.name, m
		switch way.sign {
		case syscall.SIGSTOP: // it continues, and must notice that it has lost its slots
			again = "SIGCONT"
		case syscall.SIGTERM:
			if err := m.gone(w.o.limit); err != nil {
				return fmt.Errorf("cannot end a replica: %w", err)
			}
			next, err = w.make(ctx)
		default:
			m.kill()
			next, err = w.make(ctx)
		}
		if err != nil {
			return err
		}
		err := w.takeover(ctx, r, again, true, func() error {
			w.live = append(w.live, next)
			if next == m {
				return m.signal(syscall.SIGCONT)
			}
			return next.begin()
		})
		if err != nil {
			return err
		}
	}
	rewritten, err := w.db.changed(ctx, prefixOf(w.o.kind), revision)
	if err != nil {
		return fmt.Errorf("cannot count the objects that were written: %w", err)
	}
	r.rewritten = float64(rewritten)
	return nil
}

// takeover measures the time from a change until the members are in sync; see world.inSync.
func (w *world) takeover(ctx context.Context, r *result, what string, even bool, change func() error) error {
	if _, err := w.all("stats"); err != nil {
		return err
	}
	before := map[*member]source.Counters{}
	for _, m := range slices.Concat(w.live, w.apart) {
		before[m] = m.last
	}
	began := time.Now()
	if err := change(); err != nil {
		return err
	}
	t := takeover{what: what}
	var err error
	if t.slots, t.whole, err = w.inSync(ctx, began, even); err != nil {
		return fmt.Errorf("cannot take over after %s: %w", what, err)
	}
	for _, m := range w.live {
		t.objectsRead += m.last.WireObjects - before[m].WireObjects
		t.bytesRead += m.last.WireBytes - before[m].WireBytes
	}
	r.takeovers = append(r.takeovers, t)
	w.progress("feature %s, %d replicas, %s: %.2f s, all observed after %.2f s, %d objects and %.1f MB read",
		onOff(r.gate), r.n, what, t.slots.Seconds(), t.whole.Seconds(), t.objectsRead, float64(t.bytesRead)/1e6)
	return nil
}
