package bubble

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/simulate/internal/controllers"
	"github.com/fairlead-io/fairlead/simulate/internal/engine"
)

// Date is the virtual time at which each run begins, so that certificates and tokens are valid.
var Date = time.Date(2026, time.January, 15, 12, 0, 0, 0, time.UTC)

// Setup is what all schedules of a search have in common.
type Setup struct {
	Start      func(context.Context, *rest.Config) error
	CRDs       *apiserver.CRDs
	Steps      []Step
	Invariants []func(*Run) error
	Outside    map[string]func() http.Handler // by host
	// Progress, if set, is called whenever the run does anything.
	Progress func()
}

// Play plays one schedule. It ends as soon as the state is the wanted one and quiet; want is nil for a reference. The
// caller has started a bubble, and all goroutines of Play have ended when it returns, unless the subject leaves some
// behind: then the error says so.
func Play(s Setup, p engine.Plan, want *engine.Want) (*engine.Outcome, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_ = sleep(nil, time.Until(Date))
	gates := newGates()
	rec := newRecorder(newInjector(p, gates))
	var others *controllers.Controllers
	var early []apiserver.Change // while New creates the definitions
	server, err := apiserver.New(apiserver.Options{
		Pipe: true, Strict: true, CRDs: s.CRDs, Names: p.Seed * 100, OnChange: func(c apiserver.Change) {
			rec.OnChange(c)
			if others == nil {
				early = append(early, c)
			} else {
				others.OnChange(c)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start the model server: %w", err)
	}
	defer server.Close()
	for _, kind := range more() {
		server.Register(kind)
	}
	if s.Progress == nil {
		s.Progress = func() {}
	}
	w := &wire{progress: s.Progress, seed: p.Seed, rec: rec, gates: gates, turn: make(chan struct{}, 1)}
	config := func(actor string, of *process) *rest.Config {
		cfg := server.Config()
		cfg.QPS, cfg.Burst = 0, 0 // the defaults of client-go, as in a cluster
		cfg.WrapTransport = func(inner http.RoundTripper) http.RoundTripper {
			return &transport{wire: w, inner: inner, actor: actor, process: of}
		}
		return cfg
	}
	others = controllers.New(controllers.Options{Config: unlimited(config("cluster", nil)), Delay: w.delayOf})
	for _, c := range early {
		others.OnChange(c)
	}
	for _, obj := range controllers.Objects(namespaces...) {
		if _, err := server.Put(obj); err != nil {
			return nil, fmt.Errorf("cannot create what a cluster has from the start: %w", err)
		}
	}
	rec.forget()
	run := &Run{progress: s.Progress, rec: rec, want: want, others: others, server: server, outside: newOutside(s.Outside)}
	run.config = unlimited(config("workload", nil))
	if run.client, err = dynamic.NewForConfig(run.config); err != nil {
		return nil, err
	}
	toucher := *run
	if toucher.client, err = dynamic.NewForConfig(unlimited(config("outside", nil))); err != nil {
		return nil, err
	}
	w.touch = toucher.touch

	sub := &subject{start: s.Start, rec: rec, live: map[*process]bool{}}
	sub.newConfig = func(of *process) *rest.Config {
		of.client = &http.Client{Transport: &caller{wire: w, outside: run.outside, process: of}}
		return config(engine.Subject, of)
	}
	replicas := 1
	if slices.ContainsFunc(p.Faults, func(f engine.Fault) bool { return f.Kind == engine.Pause }) {
		replicas = 2
	}
	done := make(chan struct{})
	for range replicas {
		go func() {
			sub.run(ctx)
			done <- struct{}{}
		}()
	}
	go func() {
		run.guard(ctx, s.Invariants)
		done <- struct{}{}
	}()

	go func() {
		_ = others.Run(ctx)
		done <- struct{}{}
	}()

	out := run.work(ctx, s.Steps, p)
	out.Exits = sub.ends()
	cancel()
	err = sub.stop()
	for range replicas + 2 {
		<-done
	}
	return out, err
}

// namespaces exist from the start.
var namespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// unlimited lifts the limit of client-go.
func unlimited(cfg *rest.Config) *rest.Config {
	cfg.QPS = -1
	return cfg
}

// work plays the steps of the workload, waits until all is quiet, and returns the outcome.
func (r *Run) work(ctx context.Context, steps []Step, p engine.Plan) *engine.Outcome {
	out := &engine.Outcome{}
	if p.Steps > 0 && p.Steps < len(steps) {
		steps = steps[:p.Steps]
	}
	for i, step := range steps {
		r.rec.note("workload", step.Name)
		if err := step.Play(ctx, r); err != nil {
			out.Stuck = &engine.Stuck{Step: i, Name: step.Name, Reason: err.Error()}
			break
		}
	}
	out.Quiet, out.Busy = r.settle(ctx)
	out.End, out.Calls, out.Elapsed = r.rec.state(), r.Calls(), r.Elapsed()
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	out.Reached, out.Trace, out.Broken = r.rec.faults.reached, slices.Clone(r.rec.trace), slices.Clone(r.rec.broken)
	out.Watched, out.Leads = slices.Sorted(maps.Keys(r.rec.watched)), r.rec.leads
	return out
}

// guard checks the invariants after each change. Each violated text is recorded once.
func (r *Run) guard(ctx context.Context, invariants []func(*Run) error) {
	if len(invariants) == 0 {
		return
	}
	seen := map[string]bool{}
	for {
		next := r.rec.next()
		for _, holds := range invariants {
			if err := holds(r); err != nil && !seen[err.Error()] {
				seen[err.Error()] = true
				r.rec.violated(err.Error())
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}
