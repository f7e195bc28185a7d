package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

// Pace are the times that decide when a system is quiet, on the clock of the run.
type Pace struct {
	// Calm is how long nothing must change until the system is quiet. Reference is the same for a run without faults,
	// in which no back-off has grown.
	Calm, Reference time.Duration
	// Brief is how long nothing must change if the state is the one without faults.
	Brief time.Duration
	// TooLong bounds a run that does not become quiet.
	TooLong time.Duration
	// Window is the period in which requests are counted. A request that the subject sends more than once a second while
	// nothing changes shows that the system is not quiet.
	Window time.Duration
	// Poll is the longest time between two looks at a system that changes no more.
	Poll time.Duration
}

// tooMany bounds the changes of one object in a run that does not become quiet.
const tooMany = 300

// Options are what a driver gives to a run.
type Options struct {
	Plan       engine.Plan
	Want       *engine.Want // nil in a reference
	Pace       Pace
	Invariants []func(*Run) error
	Outside    map[string]func() http.Handler // services outside the cluster, by host
	Given      []*unstructured.Unstructured   // exist before the subject starts

	// Config is that of a client of the API server with all rights, on which transports with faults are built.
	Config *rest.Config
	// Resources returns what the API server serves.
	Resources func() []apiserver.Resource
	// Gaps says of kinds what a model API server does not have, such as "no controller". Nil: the server is a real one.
	Gaps map[schema.GroupResource]string
	// Idle reports whether the controllers of the cluster have nothing to do.
	Idle func() bool
	// Stored, if set, waits until the change of a write has been given to OnChange. q is the write and resp its answer,
	// of which Stored may read and replace the body. Without Stored, OnChange is called while the server stores a write,
	// and no other change happens meanwhile.
	Stored func(ctx context.Context, res schema.GroupResource, resp *http.Response)
	// Reached, if set, waits until all changes that a frame of a watch shows have been given to OnChange.
	Reached func(ctx context.Context, res schema.GroupResource, version string)
	// Progress is called whenever the run does anything.
	Progress func()
	// GaveUp, if set, is called when a step is not reached, before the subject ends.
	GaveUp func()
}

// Run is one run in progress, as the driver, steps, conditions and invariants see it. It is safe for concurrent use.
type Run struct {
	o       Options
	rec     *recorder
	wire    *wire
	config  *rest.Config // of the workload
	client  dynamic.Interface
	outside *outside
	kinds   *kinds
}

// New returns a run. The API server need not serve yet.
func New(o Options) (*Run, error) {
	if o.Progress == nil {
		o.Progress = func() {}
	}
	gates := newGates()
	rec := newRecorder(newInjector(o.Plan, gates), o.Plan, o.Want == nil)
	rec.concurrent = o.Stored != nil
	r := &Run{o: o, rec: rec, outside: newOutside(o.Outside), kinds: newKinds(o.Resources)}
	r.wire = &wire{
		progress: o.Progress, seed: o.Plan.Seed, rec: rec, gates: gates, turn: make(chan struct{}, 1),
		stored: o.Stored, reached: o.Reached,
		coverage: newCoverage(o.Gaps, o.Resources),
	}
	r.config = r.Client("workload")
	var err error
	if r.client, err = dynamic.NewForConfig(r.config); err != nil {
		return nil, err
	}
	toucher := *r
	if toucher.client, err = dynamic.NewForConfig(r.Client("outside")); err != nil {
		return nil, err
	}
	r.wire.touch = toucher.touch
	return r, nil
}

// Client returns a configuration without limits for a client that is not part of the subject. Its writes are recorded
// as those of the actor.
func (r *Run) Client(actor string) *rest.Config {
	cfg := rest.CopyConfig(r.o.Config)
	cfg.QPS = -1
	cfg.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		return &transport{wire: r.wire, inner: inner, actor: actor}
	})
	return cfg
}

// Transport returns the transport of a process of the subject, which plays the faults. It sends requests with inner.
func (r *Run) Transport(p *Process, inner http.RoundTripper) http.RoundTripper {
	return &transport{wire: r.wire, inner: inner, actor: engine.Subject, process: p}
}

func (r *Run) outsideTransport(p *Process) http.RoundTripper {
	return &caller{wire: r.wire, outside: r.outside, process: p}
}

// OnChange takes a change of an object, before a watch of the subject shows it. The objects are shared.
func (r *Run) OnChange(c apiserver.Change) { r.rec.onChange(c) }

// Forget drops the trace so far.
func (r *Run) Forget() { r.rec.forget() }

// DelayOf returns a short time that follows from the seed and a text.
func (r *Run) DelayOf(text string) time.Duration { return r.wire.delayOf(text) }

// Play creates the given objects, starts the subject, plays the steps of the workload, and waits until all is quiet.
// All goroutines of the subject have ended when it returns; otherwise the error says that they did not.
func (r *Run) Play(ctx context.Context, s *Subject, steps []Step) (*engine.Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, obj := range r.o.Given {
		if err := r.Apply(ctx, obj); err != nil {
			return nil, fmt.Errorf("cannot create the %s %s before the subject starts: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	r.Forget()
	s.run = r
	r.rec.faults.kill = s.kill
	replicas := 1
	if r.o.Plan.NeedsReplicas() {
		replicas = 2
	}
	var own sync.WaitGroup
	for range replicas {
		own.Go(func() { s.keepAlive(ctx) })
	}
	own.Go(func() { r.guard(ctx) })
	out := r.work(ctx, steps)
	out.Exits = s.ends()
	cancel()
	err := s.wait()
	own.Wait()
	return out, err
}

// work plays the steps of the workload, waits until all is quiet, and returns the outcome.
func (r *Run) work(ctx context.Context, steps []Step) *engine.Outcome {
	out := &engine.Outcome{}
	if n := r.o.Plan.Steps; n > 0 && n < len(steps) {
		steps = steps[:n]
	}
	for i, step := range steps {
		r.rec.note("workload", step.Name)
		if err := step.Play(ctx, r); err != nil {
			out.Stuck = &engine.Stuck{Step: i, Name: step.Name, Reason: err.Error(), At: r.Elapsed()}
			if r.o.GaveUp != nil {
				r.o.GaveUp()
			}
			break
		}
	}
	out.Quiet, out.Busy = r.settle(ctx)
	out.End, out.Calls, out.Elapsed = r.rec.state(), r.Calls(), r.Elapsed()
	r.rec.report(out)
	out.Warnings = r.wire.coverage.report()
	if r.o.Plan.Steps == 0 {
		out.Unserved = r.kinds.unserved()
	}
	return out
}

// guard checks the invariants after each change. Each violated text is recorded once.
func (r *Run) guard(ctx context.Context) {
	if len(r.o.Invariants) == 0 {
		return
	}
	seen := map[string]bool{}
	for {
		next := r.rec.next()
		for _, holds := range r.o.Invariants {
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

// Config returns a configuration of a client that is not part of the subject.
func (r *Run) Config() *rest.Config { return rest.CopyConfig(r.config) }

// Elapsed returns the virtual time since the start.
func (r *Run) Elapsed() time.Duration { return time.Since(r.rec.start) }

// Calls returns the number of calls with an effect on an outside service.
func (r *Run) Calls() map[string]int { return r.outside.effects() }

// calm returns how long nothing must change until the system is quiet.
func (r *Run) calm() time.Duration {
	if r.o.Want == nil {
		return r.o.Pace.Reference
	}
	return r.o.Pace.Calm
}

// Await waits until condition returns nil. It gives up when nothing changes any more, or ctx ends, and returns the last
// error.
func (r *Run) Await(ctx context.Context, condition func() error) error {
	begin, calm, tooLong := time.Now(), r.o.Pace.Calm, r.o.Pace.TooLong
	r.rec.restart()
	for {
		r.o.Progress()
		next := r.rec.next()
		err := condition()
		if err == nil {
			return nil
		}
		last, changes := r.rec.quietSince()
		switch {
		case time.Since(last) >= calm:
			return fmt.Errorf("%w (nothing changed for %s)", err, calm)
		case time.Since(begin) >= tooLong:
			return fmt.Errorf("%w (after %s)", err, tooLong)
		case changes > tooMany:
			return fmt.Errorf("%w (one object has changed %d times)", err, changes)
		}
		t := time.NewTimer(min(10*time.Second, calm, r.o.Pace.Poll))
		select {
		case <-next:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return err
		}
	}
}

// settle waits until the system is quiet. It returns what the subject repeats meanwhile.
func (r *Run) settle(ctx context.Context) (quiet bool, busy []engine.Repeat) {
	begin, calm, pace := time.Now(), r.calm(), r.o.Pace
	r.rec.restart()
	for ctx.Err() == nil {
		r.o.Progress()
		last, changes := r.rec.quietSince()
		still := time.Since(last)
		if still >= pace.Window {
			if busy := r.rec.busy(pace.Window); len(busy) > 0 {
				return false, busy
			}
		}
		if still >= calm && r.o.Idle() || r.settled(still) {
			return true, nil
		}
		if changes > tooMany || time.Since(begin) > pace.TooLong {
			return false, nil
		}
		next := pace.Poll
		if r.o.Want != nil && still < pace.Brief {
			next = pace.Brief - still
		}
		_ = sleep(ctx.Done(), max(time.Second, min(calm-still, next)))
	}
	return false, nil
}

// settled reports whether the state equals the end without faults, the faults are over, and nothing changes.
func (r *Run) settled(still time.Duration) bool {
	brief := r.o.Pace.Brief
	return r.o.Want != nil && still >= brief && r.o.Idle() && len(r.rec.busy(brief)) == 0 &&
		r.o.Want.Equals(r.rec.state())
}

// Apply applies an object as "kubectl apply --server-side" does.
func (r *Run) Apply(ctx context.Context, obj *unstructured.Unstructured) error {
	res, err := r.kinds.of(obj.GroupVersionKind())
	if err != nil {
		return err
	}
	c := r.in(res, cmp.Or(obj.GetNamespace(), metav1.NamespaceDefault))
	b, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	force := true
	_, err = c.Patch(ctx, obj.GetName(), types.ApplyPatchType, b,
		metav1.PatchOptions{FieldManager: "workload", Force: &force})
	return err
}

// Patch applies a JSON merge patch.
func (r *Run) Patch(ctx context.Context, ref, patch, subresource string) error {
	res, namespace, name, err := r.kinds.resolve(ref)
	if err != nil {
		return err
	}
	var sub []string
	if subresource != "" {
		sub = append(sub, subresource)
	}
	_, err = r.in(res, namespace).Patch(ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "workload"}, sub...)
	return err
}

// Delete deletes an object in the background, and does not wait until it is gone.
func (r *Run) Delete(ctx context.Context, ref string) error {
	res, namespace, name, err := r.kinds.resolve(ref)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	return r.in(res, namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
}

// in returns a client of a resource in a namespace, which does not matter if the resource has none.
func (r *Run) in(res apiserver.Resource, namespace string) dynamic.ResourceInterface {
	if res.Namespaced {
		return r.client.Resource(res.GVR()).Namespace(namespace)
	}
	return r.client.Resource(res.GVR())
}

// Object returns an object, or nil if it does not exist or its kind is not served.
func (r *Run) Object(ref string) (*unstructured.Unstructured, error) {
	res, namespace, name, err := r.kinds.resolve(ref)
	of, _, _ := strings.Cut(ref, "/")
	if r.kinds.ask(of, err); errors.As(err, new(*unservedError)) {
		return nil, nil //nolint:nilnil // as for an object that does not exist
	}
	if err != nil {
		return nil, err
	}
	return r.rec.object(objectKey{res.GVR().GroupResource(), namespace, name}), nil
}

// Objects returns all objects of a resource, or none if it is not served.
func (r *Run) Objects(resource string) []*unstructured.Unstructured {
	res, err := r.kinds.resource(resource)
	if r.kinds.ask(resource, err); err != nil {
		return nil
	}
	return r.rec.list(res.GVR().GroupResource())
}

// touch writes an annotation to an object, as another client.
func (r *Run) touch(q request) {
	gvr := q.resource.WithVersion(q.version)
	var c dynamic.ResourceInterface = r.client.Resource(gvr)
	if q.namespace != "" {
		c = r.client.Resource(gvr).Namespace(q.namespace)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, engine.Touched, r.Elapsed())
	_, _ = c.Patch(context.Background(), q.name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "other"})
}

// IsGone reports the error of a request for an object that does not exist.
func IsGone(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsNotFound(err)
}
