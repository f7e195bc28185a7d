package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	groups "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

const (
	// late is how long a watch is late.
	late = 4 * time.Second
	// limit bounds one schedule.
	limit = 10 * time.Minute
)

// pace counts real time. A back-off of usual controllers takes 20 s only after a dozen failures in a row.
var pace = schedule.Pace{
	Calm: 20 * time.Second, Reference: 8 * time.Second, Brief: 3 * time.Second, TooLong: 3 * time.Minute,
	Window: 10 * time.Second, Poll: time.Second,
}

// Options configure a Driver.
type Options struct {
	Command    []string                     // program and arguments; {kubeconfig} in an argument is replaced by a path
	CRDs       []*unstructured.Unstructured // definitions of the subject's kinds
	Steps      []schedule.Step
	Invariants []func(*schedule.Run) error
	Outside    map[string]func() http.Handler // by host; the subject reaches them by HTTP_PROXY
	Given      []*unstructured.Unstructured   // exist before the subject starts
	// Progress receives lines about the build of the control plane.
	Progress io.Writer
}

// Driver plays schedules on a real control plane. It implements engine.Driver. It plays one at a time, since two
// subjects on one machine would use the same ports.
type Driver struct {
	o       Options
	dir     string
	planes  *supply
	ports   ports
	account atomic.Pointer[account] // of a subject that runs as in a Pod
	playing sync.Mutex
}

// Play replays a plan, or searches if there is none. When it returns, all processes have ended, and no file is left.
func Play(ctx context.Context, o Options, s engine.Options, plan *engine.Plan) (report *engine.Report, err error) {
	d, err := NewDriver(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.planes.started(ctx); err != nil { // this may be a build, which is no part of the time of the search
		return nil, err
	}
	s.Workers, s.Late = 1, late
	return engine.Play(ctx, d, s, plan)
}

// NewDriver returns a driver, which the caller has to close.
func NewDriver(o Options) (*Driver, error) {
	dir, err := os.MkdirTemp("", "simulate-")
	if err != nil {
		return nil, err
	}
	return &Driver{o: o, dir: dir, planes: newSupply(o.CRDs, o.Progress)}, nil
}

// Close ends all control planes, and removes all files.
func (d *Driver) Close() error {
	d.planes.close()
	return os.RemoveAll(d.dir)
}

// Play implements engine.Driver.
func (d *Driver) Play(ctx context.Context, p engine.Plan, want *engine.Want) (*engine.Outcome, error) {
	d.playing.Lock()
	defer d.playing.Unlock()
	plane, err := d.planes.take(ctx)
	if err != nil {
		return nil, err
	}
	defer plane.close()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the schedule took more than %s", limit))
	defer cancel()
	run, err := schedule.New(schedule.Options{
		Plan: p, Want: want, Pace: pace, Invariants: d.o.Invariants, Outside: d.o.Outside, Config: plane.config,
		Given:     d.o.Given,
		Resources: plane.served, Idle: func() bool { return true },
		Stored:  func(ctx context.Context, res groups.GroupResource, resp *http.Response) { plane.stored(ctx, res, resp) },
		Reached: plane.follower.reached,
	})
	if err != nil {
		return nil, err
	}
	plane.follower.attach(run.OnChange)
	run.Forget()
	starter, err := newStarter(d, run, plane.config)
	if err != nil {
		return nil, err
	}
	start := func(own context.Context, of *schedule.Process) error { return starter.start(ctx, own, of) }
	out, err := run.Play(ctx, &schedule.Subject{Start: start, WaitForEnd: true}, d.o.Steps)
	if err == nil {
		err = plane.follower.failure()
	}
	if err == nil && out.Stuck != nil && want == nil {
		if starter.requests.Load() == 0 {
			out.Stuck.Reason += "\nthe subject has sent no request to the API server at $KUBECONFIG"
		}
		out.Stuck.Reason += starter.printed.String()
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// stored waits until the change of a write has been seen.
func (p *plane) stored(ctx context.Context, res groups.GroupResource, resp *http.Response) {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	var answer struct {
		metav1.PartialObjectMetadata
		Details struct {
			UID string `json:"uid"`
		} `json:"details"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return
	}
	if resp.Request.Method != http.MethodDelete {
		p.follower.reached(ctx, res, answer.ResourceVersion)
		return
	}
	if answer.UID == "" {
		answer.UID = types.UID(answer.Details.UID)
	}
	p.follower.ended(ctx, answer.UID)
}

// failing is the end of a body that could not be read: err, or io.EOF if that is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
