package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/crd"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/internal/simulation/live"
	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
	"github.com/fairlead-io/fairlead/simulate/internal/bubble"
	"github.com/fairlead-io/fairlead/simulate/internal/worker"
)

// A Subject is the controller under test.
type Subject struct {
	// Start does what main does with this configuration: it makes a manager and runs it. It returns when ctx ends. It is
	// called for each schedule, and once more after each crash, and must not use state of earlier calls. Nil with
	// the option Command.
	Start func(ctx context.Context, cfg *rest.Config) error
	// CRDs is a file or a directory with the CustomResourceDefinitions of the subject, as YAML. Empty: none, or the
	// subject creates them.
	CRDs string
}

// planVariable is the environment variable with the plan to replay, as JSON.
const planVariable = "FAIRLEAD_SIMULATE_PLAN"

const (
	defaultUntil = 2 * time.Minute
	liveUntil    = 5 * time.Minute  // of a program
	reserve      = 15 * time.Second // before the deadline of the test, for the report
)

// Test plays the workload first without faults, then with each single fault at each moment, then with random pairs of
// faults. The test fails with a report if a schedule ends otherwise than without faults. It also fails if the subject
// does not work without faults.
//
// Test starts its test again in child processes, in which it plays the schedules. So whatever precedes Test in the test
// happens there, too. A test may call Test only once from each line.
func Test(t *testing.T, s Subject, parts ...Part) {
	t.Helper()
	_, file, line, _ := runtime.Caller(1)
	report, err := search(t, fmt.Sprintf("%s %s:%d", t.Name(), file, line), s, parts)
	if err != nil {
		t.Fatalf("simulate: %v", err)
	}
	if report == nil { // a child
		return
	}
	text := engine.Text(report, names(t))
	if len(report.Findings) > 0 {
		t.Fatal(text)
	}
	if err := report.Unjudged(); err != nil {
		t.Fatalf("simulate: %v\n%s", err, text)
	}
	t.Log(text)
}

// search plays the schedules in children, or serves them if this process is a child. id tells this call from others.
// The report is nil in a child.
func search(t *testing.T, id string, s Subject, parts []Part) (*engine.Report, error) {
	child, serves := worker.IsChild(id)
	if child && !serves {
		return nil, nil
	}
	c, err := newCourse(s, parts)
	if err != nil {
		return nil, err
	}
	var setup bubble.Setup
	if c.command == nil {
		if setup, err = c.bubble(s.Start); err != nil {
			return nil, err
		}
	}
	if child {
		worker.Serve(t, setup)
		return nil, nil
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	o := c.options
	o.Until = c.until
	if deadline, ok := t.Deadline(); ok {
		o.Deadline = deadline.Add(-reserve)
	}
	if testing.Verbose() {
		o.Progress = func(line string) { _, _ = fmt.Fprintln(t.Output(), "simulate:", line) }
	}
	var plan *engine.Plan
	if text := os.Getenv(planVariable); text != "" {
		p, err := engine.ParsePlan(text)
		if err != nil {
			return nil, fmt.Errorf("the plan in %s: %w", planVariable, err)
		}
		plan = &p
	}
	var report *engine.Report
	if len(c.command) > 0 {
		report, err = live.Play(ctx, live.Options{
			Command: c.command, CRDs: c.crds, Steps: c.steps, Invariants: c.invariants, Outside: c.outside,
			Given: c.given, Progress: t.Output(),
		}, o, plan)
	} else {
		o.Workers = runtime.GOMAXPROCS(0)
		pool := worker.NewPool(t.Name(), id, o.Workers)
		defer pool.Close()
		report, err = engine.Play(ctx, pool, o, plan)
	}
	if err == nil && c.out != "" {
		if err = engine.Write(c.out, report, names(t)); err != nil {
			err = fmt.Errorf("%w\n%s", err, engine.Text(report, names(t)))
		}
	}
	return report, err
}

func names(t *testing.T) engine.Names {
	return engine.Names{Replay: func(plan string) string {
		return fmt.Sprintf("%s='%s' go test -run '^%s$' .", planVariable, plan, strings.ReplaceAll(t.Name(), "/", "$/^"))
	}}
}

// course is what a call of Test plays.
type course struct {
	steps      []schedule.Step
	invariants []func(*schedule.Run) error
	outside    map[string]func() http.Handler // services outside the cluster, by host
	command    []string                       // instead of Subject.Start; empty: none
	path       string                         // of the definitions; empty: none
	crds       []*unstructured.Unstructured   // the definitions
	given      []*unstructured.Unstructured   // exist before the subject starts
	options    engine.Options
	until      time.Duration
	out        string // directory of the findings; empty: none
}

func newCourse(s Subject, parts []Part) (*course, error) {
	c := &course{outside: map[string]func() http.Handler{}, path: s.CRDs}
	c.options.Seed = 1
	if s.CRDs != "" {
		var err error
		if c.crds, err = schedule.ReadDefinitions(s.CRDs); err != nil {
			return nil, fmt.Errorf("cannot read the CustomResourceDefinitions: %w", err)
		}
	}
	for _, p := range parts {
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	switch {
	case s.Start == nil && c.command == nil:
		return nil, errors.New("the Subject has no Start, and there is no Command")
	case s.Start != nil && c.command != nil:
		return nil, errors.New("there are both a Start and a Command")
	}
	if len(c.steps) == 0 {
		return nil, errors.New("the workload has no steps, such as simulate.Apply")
	}
	c.options.Steps, c.options.EarlyEnd = len(c.steps), schedule.BeforeDeletion(c.steps)
	switch {
	case c.until > 0:
	case c.command != nil:
		c.until = liveUntil
	default:
		c.until = defaultUntil
	}
	return c, nil
}

// bubble returns what the driver in virtual time needs.
func (c *course) bubble(start func(context.Context, *rest.Config) error) (bubble.Setup, error) {
	var contents [][]byte
	for _, u := range c.crds {
		b, err := u.MarshalJSON()
		if err != nil {
			return bubble.Setup{}, err
		}
		contents = append(contents, b)
	}
	crds, err := crd.New(contents...)
	if err != nil {
		return bubble.Setup{}, fmt.Errorf("cannot use the CustomResourceDefinitions in %s: %w", c.path, err)
	}
	return bubble.Setup{
		Start: start, CRDs: crds, Steps: c.steps, Invariants: c.invariants, Outside: c.outside,
		Given: c.given,
	}, nil
}

// randomSeed is for option Seed(0).
func randomSeed() uint64 { return rand.Uint64() }

// Client returns the client with which the subject calls the services that are given to External. ctx is that of
// Subject.Start, or one that is derived from it. Outside of a simulation it returns http.DefaultClient.
func Client(ctx context.Context) *http.Client {
	if c := bubble.Client(ctx); c != nil {
		return c
	}
	return http.DefaultClient
}
