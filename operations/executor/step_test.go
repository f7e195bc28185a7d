package executor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/course/coursetest"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// stage implements the parts that a stepper works with. It logs the stepper's requests in order.
type stage struct {
	log    []string
	stored *v1alpha1.Operation
	hook   *webhook.Compiled
	client *webhook.Client
	flight *flight // of the last call

	failing error // of save
	short   bool  // the namespace has used up its share of writes
	full    bool  // calls must wait for their turn
	facts   course.WebhookFacts
}

func (s *stage) refresh(_ context.Context, d draft) error {
	d.confirmed = true
	if d.op == nil {
		d.adopt(s.stored.DeepCopy())
	}
	return nil
}

func (s *stage) reload(_ context.Context, d draft) error {
	s.log = append(s.log, "reload")
	d.adopt(s.stored.DeepCopy())
	return nil
}

func (s *stage) save(_ context.Context, d draft) error {
	switch {
	case s.failing != nil:
		return s.failing
	case len(d.unsaved) == 0:
		return nil
	}
	s.log = append(s.log, "save "+string(d.op.Status.Phase))
	d.unsaved, d.unrecorded = nil, time.Time{}
	s.stored = d.op.DeepCopy()
	d.adopt(s.stored.DeepCopy())
	return nil
}

func (s *stage) hold(_ context.Context, d draft) error {
	if !held(d.op) {
		s.log = append(s.log, "hold")
		d.op.Finalizers = append(d.op.Finalizers, v1alpha1.Finalizer)
	}
	return nil
}

func (s *stage) holdWaiting(ctx context.Context, d draft) error {
	if !waits(d.op) {
		return nil
	}
	return s.hold(ctx, d)
}

func (s *stage) pay(draft) bool                      { return !s.short }
func (*stage) release(context.Context, draft) error  { return nil }
func (*stage) remove(context.Context, draft) error   { return nil }
func (*stage) refund(draft)                          {}
func (*stage) placeOf(op *v1alpha1.Operation) string { return op.ResourceVersion }
func (*stage) join(*news, store.Key)                 {}
func (*stage) leave(*news)                           {}
func (*stage) wake(store.Key)                        {}
func (*stage) behind(*news) (store.Key, bool)        { return store.Key{}, false }
func (*stage) times(store.Key) (compiled.Times, bool) {
	return compiled.Times{Timeout: time.Hour}, true
}
func (*stage) withheld(store.Key) error                  { return nil }
func (*stage) Breaker(_, _ string) webhook.BreakerStatus { return webhook.BreakerStatus{} }

func (*stage) turn(*news, *v1alpha1.Operation, bool) (course.Turn, bool) { return course.Turn{}, true }

func (*stage) resolveDoubt(context.Context, *course.Doubt) error { return nil }

func (s *stage) find(string) course.Lookup {
	return func(string) (course.WebhookFacts, bool) { return s.facts, true }
}

func (s *stage) usable(store.Key, *news) (*webhook.Compiled, error) { return s.hook, nil }

// newStage returns a stage that stores op and the Webhook that op calls.
func newStage(t *testing.T, op *v1alpha1.Operation) *stage {
	t.Helper()
	hook, err := webhook.Compile(webhook.Definition{
		Namespace: "ns", Name: "one", Request: webhook.Request{URL: "https://example.com/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := webhook.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &stage{stored: op, hook: hook, client: client, facts: course.WebhookFacts{Timeout: time.Hour}}
}

// stagedOperation returns an accepted operation that calls the Webhook of a stage.
func stagedOperation() *v1alpha1.Operation {
	return coursetest.Requested(func(op *v1alpha1.Operation) {
		op.Namespace, op.ResourceVersion = "ns", "1"
		op.CreationTimestamp = metav1.NewTime(epoch)
		op.Spec.OperationID, op.Spec.WebhookIDs = "op", []string{"one"}
	})
}

// stepper returns a stepper that works on the stage, and the run of the stored operation.
func (s *stage) stepper() (*stepper, *run) {
	pace := &paces{}
	steps := &stepper{
		holds: func(string) bool { return true }, draining: func(string) bool { return false },
		namesOf: func(*v1alpha1.Operation) nameSet { return 0 }, runs: newRuns(func(store.Key) {}),
		writes: s, turns: s, hooks: s, reports: stagedReports{s}, busy: &drain{}, troubles: &troubles{},
		stuck: newTally(nil), paces: pace, endpoints: s, traces: spans{}, log: slog.New(slog.DiscardHandler),
		now: func() time.Time { return epoch },
		starter: &starter{
			fence: func(string) error { return nil }, writes: s, hooks: s, calls: stagedCalls{s},
			reports: stagedReports{s}, paces: pace, trusted: func(string) bool { return true },
			callbackURL: func(*v1alpha1.Operation, string, webhook.Purpose) string { return "" }, traces: spans{},
		},
	}
	r := newRun(store.Key{Namespace: s.stored.Namespace, Name: s.stored.Name}, s.stored)
	steps.runs.add(r, func() bool { return true })
	return steps, r
}

// stagedCalls implements caller.
type stagedCalls struct{ *stage }

func (c stagedCalls) admit(
	_ store.Key, _ fair.Party, q queued, call string, hook *webhook.Compiled, now time.Time,
) (*flight, refusal) {
	if c.full {
		return nil, refusal{call: call, until: course.FarFuture, share: sharePlaces, since: now}
	}
	permit, _ := c.client.Acquire(hook, call, nil)
	return &flight{target: q.target, hook: hook, permit: permit}, refusal{}
}

func (c stagedCalls) release(store.Key, fair.Party, *flight) { c.log = append(c.log, "release") }

func (c stagedCalls) withdraw(fair.Party, queued, string) { c.log = append(c.log, "withdraw") }

func (c stagedCalls) start(_ context.Context, _ *run, f *flight, of webhook.Call, _ string, _ time.Time) {
	f.permit.Release()
	f.cancel = func(error) {}
	c.flight = f
	c.log = append(c.log, "call "+of.ID)
}

// stagedReports implements reports, and drops most of them.
type stagedReports struct{ *stage }

func (stagedReports) began(context.Context, *v1alpha1.Operation) {}
func (stagedReports) called(*flight, webhook.Result)             {}
func (stagedReports) showWait(
	context.Context, draft, string, *course.Predecessor, course.Decision, time.Time,
) {
}

func (stagedReports) judged(context.Context, *v1alpha1.Operation, *flight, webhook.Result, string) {}

func (stagedReports) outdatedCRD(context.Context, *v1alpha1.Operation) {}

func (r stagedReports) ended(_ context.Context, op *v1alpha1.Operation) {
	r.log = append(r.log, "ended "+string(op.Status.Phase))
}

// TestStep: an operation is recorded before its calls, except for a first try that the object itself records. If
// recording is impossible, no call is made.
func TestStep(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		reason    string
		change    func(*v1alpha1.Operation)
		set       func(*stage)
		untrusted bool  // calls must be recorded first
		fence     error // of requests
		draining  bool
		want      []string // until the call has returned
		err       error
		end       []string // after the call has succeeded; nil: no call was made
	}{
		"Ordinary": {
			reason: "The accepted object records the first try.", want: []string{"call ns.op.one"},
			end: []string{"save Success", "ended Success"},
		},
		"Untrusted": {
			reason: "It may be impossible to record the outcome.", untrusted: true,
			want: []string{"save In Progress", "call ns.op.one"}, end: []string{"save Success", "ended Success"},
		},
		"Compensated": {
			reason: "A deletion must not prevent the compensation.",
			change: func(op *v1alpha1.Operation) { op.Spec.CompensateWebhookIDs = []string{"undo"} },
			want:   []string{"hold", "save In Progress", "call ns.op.one"}, end: []string{"save Success", "ended Success"},
		},
		"Fenced": {reason: "Another process may act.", fence: broken, err: broken},
		"Broken": {
			reason: "Without a record there is no call.", untrusted: true, set: func(s *stage) { s.failing = broken },
			want: []string{"release"}, err: broken,
		},
		"Short": {reason: "The write has to wait.", untrusted: true, set: func(s *stage) { s.short = true }, err: errShort},
		"Full": {
			reason: "The call has to wait, and readers see that it does.", set: func(s *stage) { s.full = true },
			want: []string{"save In Progress"},
		},
		"Draining": {
			reason: "The process ends.", draining: true, want: []string{"save In Progress"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := stagedOperation()
			if c.change != nil {
				c.change(op)
			}
			s := newStage(t, op)
			if c.set != nil {
				c.set(s)
			}
			steps, r := s.stepper()
			steps.draining = func(string) bool { return c.draining }
			steps.starter.fence = func(string) error { return c.fence }
			steps.starter.trusted = func(string) bool { return !c.untrusted }
			if c.draining {
				steps.busy.(*drain).begin(false)
			}
			if _, err := steps.step(t.Context(), r); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("%s The first step returns %v, want %v", c.reason, err, c.err)
			}
			if diff := cmp.Diff(c.want, s.log); diff != "" {
				t.Errorf("%s Until the call (-want +got):\n%s", c.reason, diff)
			}
			called := slices.Contains(c.want, "call ns.op.one")
			if called != (s.flight != nil) || called != (len(r.flying) == 1) {
				t.Fatalf("%s A call was made: %v, with %d under way", c.reason, s.flight != nil, len(r.flying))
			}
			if !called {
				return
			}
			s.log = nil
			steps.park(r)
			steps.runs.deliver(r, returnedCall{flight: s.flight, result: webhook.Result{Verdict: webhook.Succeeded}})
			until, err := steps.step(t.Context(), r)
			if err != nil || !until.IsZero() {
				t.Errorf("%s The last step returns %v and %v, want the end", c.reason, until, err)
			}
			if diff := cmp.Diff(c.end, s.log); diff != "" {
				t.Errorf("%s After the call (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// TestCallWithoutCredentialsWaitsInNoQueue: a call leaves the queue for a slot when its credentials are withdrawn, so
// that no slot is kept for it. It joins the queue again when they are released.
func TestCallWithoutCredentialsWaitsInNoQueue(t *testing.T) {
	t.Parallel()
	s := newStage(t, stagedOperation())
	s.full = true
	steps, r := s.stepper()
	for _, c := range []struct {
		withheld bool
		waiting  int // calls in the queue after the step
		log      []string
	}{
		{false, 1, []string{"save In Progress"}},
		{true, 0, []string{"withdraw"}},
		{false, 1, nil},
	} {
		s.log, s.facts.Withheld = nil, c.withheld
		if _, err := steps.step(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if len(r.refused) != c.waiting || !slices.Equal(s.log, c.log) {
			t.Errorf("with credentials withheld %t, %d calls wait and the log is %q; want %d and %q", c.withheld,
				len(r.refused), s.log, c.waiting, c.log)
		}
	}
}
