package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/bench/internal/proc"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/shard"
)

// childEnv is the environment variable with the task of a replica as JSON. It makes a process a replica.
const childEnv = "SHARDBENCH_REPLICA"

func isChild() bool { return os.Getenv(childEnv) != "" }

// task is the configuration of a replica.
type task struct {
	Kubeconfig, Kind, Group string
	Layout                  shard.Layout
	Namespaces              namespaces
}

// stats is the response of a replica to each line of its input. "start" starts the replica, "rest" returns free
// memory to the system before the memory is read, and "stats" only reads.
type stats struct {
	Held     []int    // slots
	Version  int64    // of the boundaries of the slots
	Starts   []uint64 // hashes at which the slots begin
	Observed []int64  // objects that the observer currently has, by unit
	Events   int64    // events of the observer since the start, without initial objects
	Objects  int      // in the store
	Counters source.Counters
	CPU      time.Duration
	Resident int64 // bytes; 0: not requested
}

// replica is the state of the child process.
type replica struct {
	task
	units    units
	rt       *fairlead.Runtime
	observed []atomic.Int64
	events   atomic.Int64
	strange  atomic.Pointer[string] // an unexpected event
}

// runChild serves the parent until the input ends or the process receives SIGTERM.
func runChild() error {
	signal.Ignore(os.Interrupt) // Ctrl-C in the terminal; the parent decides
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r := &replica{}
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &r.task); err != nil {
		return err
	}
	if err := r.declare(); err != nil {
		return err
	}
	started, done := make(chan struct{}), make(chan error, 1)
	go func() {
		defer stop() // the parent has ended
		in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
		for begin := sync.OnceFunc(func() { close(started) }); ; {
			var what string
			if in.Decode(&what) != nil {
				return
			}
			if what == "start" {
				begin()
			}
			if s := r.strange.Load(); s != nil {
				fmt.Fprintln(os.Stderr, "shardbench, replica:", *s)
				return
			}
			if out.Encode(r.stats(what == "rest")) != nil {
				return
			}
		}
	}()
	select {
	case <-started:
	case <-ctx.Done():
		return nil
	}
	go func() { done <- r.rt.Run(ctx) }()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (r *replica) declare() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	r.units = units{r.Layout, r.Namespaces}
	r.observed = make([]atomic.Int64, r.units.len())
	r.rt = fairlead.New(cfg, fairlead.WithShards("default", r.Group, fairlead.ShardBy(r.Layout.By)))
	if r.Kind == "configmaps" {
		watch[corev1.ConfigMap](r)
	} else {
		watch[corev1.Pod](r)
	}
	return nil
}

func watch[T any, P observe.Object[T]](r *replica) {
	const all observe.Selector = "all"
	observe.Source[T, P](r.rt, all, source.WithEncoding(source.Protobuf))
	observe.On[T, P](r.rt, all, func(_ context.Context, e observe.Event[T]) error {
		r.count(e.Change)
		return nil
	})
}

// count counts a change. It reads only the header of the object.
func (r *replica) count(c observe.Change) {
	i, err := numberOf(c.Key.Name)
	if err != nil {
		return // an object of kube-apiserver, not of the benchmark
	}
	if !c.Initial {
		r.events.Add(1)
	}
	var by int64
	switch c.Type {
	case observe.Added:
		by = 1
	case observe.Left:
		by = -1
	case observe.Modified:
		return
	default:
		s := fmt.Sprintf("cannot understand %s of %s: nothing is deleted here", c.Type, c.Key)
		r.strange.Store(&s)
		return
	}
	r.observed[r.units.of(i)].Add(by)
}

func (r *replica) stats(rest bool) stats {
	held := r.rt.Shards().Held()
	s := stats{
		CPU: cpu(), Events: r.events.Load(), Version: held.Layout().Version(), Starts: held.Layout().Starts(),
	}
	for slot := range held.Slots() {
		s.Held = append(s.Held, slot)
	}
	for i := range r.observed {
		s.Observed = append(s.Observed, r.observed[i].Load())
	}
	if cache := r.rt.Cache(); cache != nil {
		for _, st := range cache.Stores(schema.GroupVersionResource{Version: "v1", Resource: r.Kind}) {
			for _, status := range st.Statuses() {
				s.Counters = status.Counters
			}
		}
	}
	if rest {
		for range 2 { // weak pointers and finalizers need two collections
			goruntime.GC()
			debug.FreeOSMemory()
		}
		s.Resident = proc.Resident(os.Getpid())
	}
	return s
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
