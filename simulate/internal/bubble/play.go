package bubble

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
	"github.com/fairlead-io/fairlead/simulate/internal/controllers"
)

// Date is the virtual time at which each run begins, so that certificates and tokens are valid. The report shows it.
var Date = time.Date(2026, time.January, 15, 12, 0, 0, 0, time.UTC)

// pace counts virtual time, which costs nothing. Back-off of usual controllers ends at about 16 minutes, but grows to
// more than a few seconds only after many failures.
var pace = schedule.Pace{
	Calm: 10 * time.Minute, Reference: 10 * time.Minute, Brief: 20 * time.Second, TooLong: 2 * time.Hour,
	Window: time.Minute, Poll: time.Minute,
}

// Setup is what all schedules of a search have in common.
type Setup struct {
	Start      func(context.Context, *rest.Config) error
	CRDs       *apiserver.CRDs
	Steps      []schedule.Step
	Invariants []func(*schedule.Run) error
	Outside    map[string]func() http.Handler // by host
	Given      []*unstructured.Unstructured   // exist before the subject starts
	// Progress and GaveUp are those of schedule.Options.
	Progress, GaveUp func()
}

// Play plays one schedule. It ends as soon as the state is the wanted one and quiet; want is nil for a reference. The
// caller has started a bubble, and all goroutines of Play have ended when it returns, unless the subject leaves some
// behind: then the error says so.
func Play(s Setup, p engine.Plan, want *engine.Want) (*engine.Outcome, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steadyErrors()
	timer := time.NewTimer(time.Until(Date))
	<-timer.C
	var run *schedule.Run
	var others *controllers.Controllers
	var early []apiserver.Change // while New creates the definitions
	server, err := apiserver.New(apiserver.Options{
		Pipe: true, Strict: true, CRDs: s.CRDs, Names: p.Seed * 100, OnChange: func(c apiserver.Change) {
			if run == nil {
				early = append(early, c)
				return
			}
			run.OnChange(c)
			others.OnChange(c)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start the model server: %w", err)
	}
	defer server.Close()
	for _, kind := range more() {
		server.Register(kind)
	}
	r, err := schedule.New(schedule.Options{
		Plan: p, Want: want, Pace: pace, Invariants: s.Invariants, Outside: s.Outside, Config: server.Config(),
		Resources: server.Resources, Gaps: gaps, Idle: func() bool { return others.Idle() },
		Given: s.Given, Progress: s.Progress, GaveUp: s.GaveUp,
	})
	if err != nil {
		return nil, err
	}
	others = controllers.New(controllers.Options{Config: r.Client(engine.Cluster), Delay: r.DelayOf})
	for _, c := range early {
		r.OnChange(c)
		others.OnChange(c)
	}
	run = r
	for _, obj := range controllers.Objects(namespaces...) {
		if _, err := server.Put(obj); err != nil {
			return nil, fmt.Errorf("cannot create what a cluster has from the start: %w", err)
		}
	}
	run.Forget()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = others.Run(ctx)
	}()
	out, err := run.Play(ctx, &schedule.Subject{
		Start: func(ctx context.Context, of *schedule.Process) error {
			cfg := server.Config()
			cfg.QPS, cfg.Burst = 0, 0 // the defaults of client-go, as in a cluster
			cfg.WrapTransport = func(inner http.RoundTripper) http.RoundTripper { return run.Transport(of, inner) }
			return call(ctx, s.Start, of, cfg)
		},
	}, s.Steps)
	cancel()
	<-done
	if out == nil {
		return nil, err
	}
	for _, gap := range others.Gaps() {
		out.Warnings = append(out.Warnings, "not modelled: "+gap)
	}
	out.Warnings = append(out.Warnings, "not modelled: admission and authorization",
		"virtual time begins at "+Date.Format(time.RFC3339))
	return out, err
}

// namespaces exist from the start.
var namespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

// call calls the function of the subject. A panic is an error.
func call(ctx context.Context, start func(context.Context, *rest.Config) error, of *schedule.Process, cfg *rest.Config,
) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	return start(context.WithValue(ctx, clientKey{}, of.Client), cfg)
}

type clientKey struct{}

// Client returns the client for services outside the cluster that ctx, given to the subject, carries.
func Client(ctx context.Context) *http.Client {
	c, _ := ctx.Value(clientKey{}).(*http.Client)
	return c
}
