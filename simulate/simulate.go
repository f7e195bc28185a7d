package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/crd"
	"github.com/fairlead-io/fairlead/simulate/internal/bubble"
	"github.com/fairlead-io/fairlead/simulate/internal/engine"
	"github.com/fairlead-io/fairlead/simulate/internal/worker"
)

// A Subject is the controller under test.
type Subject struct {
	// Start does what main does with this configuration: it makes a manager and runs it. It returns when ctx ends. It is
	// called anew for each schedule, and once more after each crash, and must not use state of earlier calls.
	Start func(ctx context.Context, cfg *rest.Config) error
	// CRDs is a file or a directory with the CustomResourceDefinitions of the subject, as YAML. Empty: none.
	CRDs string
}

// planVariable is the environment variable with the plan to replay, as JSON.
const planVariable = "FAIRLEAD_SIMULATE_PLAN"

const (
	defaultUntil = 2 * time.Minute
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
	switch {
	case len(report.Findings) > 0:
		t.Fatal(text)
	case report.Interrupted:
		t.Fatal("simulate: interrupted\n" + text)
	case report.Played > 0 && report.FailedCount == report.Played:
		t.Fatal("simulate: no schedule could be judged\n" + text)
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
	if child {
		worker.Serve(t, c.setup)
		return nil, nil
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	report, err := c.search(ctx, t, id)
	if err == nil && c.out != "" {
		err = engine.Write(c.out, report, names(t))
	}
	return report, err
}

func names(t *testing.T) engine.Names {
	return engine.Names{Test: t.Name(), Variable: planVariable, Date: bubble.Date}
}

// course is what a call of Test plays.
type course struct {
	setup   bubble.Setup
	options engine.Options
	until   time.Duration
	out     string // directory of the findings; empty: none
}

func newCourse(s Subject, parts []Part) (*course, error) {
	if s.Start == nil {
		return nil, errors.New("the Subject has no Start")
	}
	c := &course{setup: bubble.Setup{Start: s.Start, Outside: map[string]func() http.Handler{}}, until: defaultUntil}
	c.options.Seed = 1
	var contents [][]byte
	if s.CRDs != "" {
		manifests, err := readManifests(s.CRDs)
		if err != nil {
			return nil, fmt.Errorf("cannot read the CustomResourceDefinitions: %w", err)
		}
		for _, m := range manifests {
			contents = append(contents, m.content)
		}
		kind := []byte("CustomResourceDefinition")
		if !slices.ContainsFunc(contents, func(b []byte) bool { return bytes.Contains(b, kind) }) {
			return nil, fmt.Errorf("there is no CustomResourceDefinition in %s", s.CRDs)
		}
	}
	var err error
	if c.setup.CRDs, err = crd.New(contents...); err != nil {
		return nil, fmt.Errorf("cannot use the CustomResourceDefinitions in %s: %w", s.CRDs, err)
	}
	for _, p := range parts {
		if err := p.add(c); err != nil {
			return nil, err
		}
	}
	if len(c.setup.Steps) == 0 {
		return nil, errors.New("the workload has no steps, such as simulate.Apply")
	}
	c.options.Steps = len(c.setup.Steps)
	return c, nil
}

func (c *course) search(ctx context.Context, t *testing.T, id string) (*engine.Report, error) {
	o := c.options
	o.Workers, o.Until = runtime.GOMAXPROCS(0), c.until
	if deadline, ok := t.Deadline(); ok {
		o.Until = min(o.Until, max(time.Until(deadline)-reserve, time.Second))
	}
	if testing.Verbose() {
		o.Progress = func(line string) { _, _ = fmt.Fprintln(t.Output(), "simulate:", line) }
	}
	pool := worker.NewPool(t.Name(), id, o.Workers)
	defer pool.Close()
	if text := os.Getenv(planVariable); text != "" {
		p, err := engine.ParsePlan(text)
		if err != nil {
			return nil, fmt.Errorf("the plan in %s: %w", planVariable, err)
		}
		return engine.Replay(ctx, pool, o, p)
	}
	return engine.Search(ctx, pool, o)
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
