package executor_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestDisturbed runs operations of random shapes while a third of the executor's requests to the API server fail.
// Requests are lost, answers are lost, and objects change just before a write. Some operations are cancelled or
// deleted. All end as if undisturbed. Every try is made exactly once, except those that a restart interrupts, which are
// repeated.
func TestDisturbed(t *testing.T) {
	seed.Play(t, 3, func(t *testing.T, seed uint64) {
		restarts := int(seed % 2 * 2)
		b := setup(t)
		d := &disturber{b: b, seed: seed, sent: make(map[string]int)}
		calls := b.Tapped(d.roundTrip)
		b.Receiver.Answer = answerByName
		for name := range tries {
			b.Webhook(name, func(s *v1alpha1.WebhookSpec) {
				s.Breaker.Failures, s.Concurrency = 1000, 2 // so that no breaker opens for a minute
				if name == "slow" {
					s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: webhook.MinInterval}
				}
			})
		}
		recorder := &operationbed.Warnings{}
		start := func() (stop func()) {
			return b.Start(func(o *executor.Options) {
				o.Calls, o.Recorder, o.MaxCalls = calls, recorder, 3
				o.Policy = call.Policy{
					Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond,
					Budget: &call.Budget{PerSecond: 1000},
				}
			})
		}
		stop := start()
		const n = 40
		ops, rnd := make([]*v1alpha1.Operation, n), rand.New(rand.NewPCG(seed, 0))
		for i := range ops {
			ops[i] = b.Schedule(randomRequest(rnd, fmt.Sprint("app", i)))
		}
		var all []ended
		for i, op := range ops {
			switch {
			case i%4 == 0:
				if _, err := b.Scheduler.Cancel(b.Ctx, operationbed.ResourceOf(op), op.EffectiveID()); err != nil &&
					!errors.Is(err, operations.ErrEnded) {
					t.Error(err)
				}
			case i%8 == 1:
				b.Delete(op.Name)
			}
			if i < restarts {
				stop()
				stop = start()
			}
			if i%8 == 1 { // its outcome cannot be read any more
				b.Eventually("gone", func() bool {
					_, err := b.Scheduler.Get(b.Ctx, operationbed.ResourceOf(op))
					return errors.Is(err, operations.ErrNotFound)
				})
			} else {
				op = b.End(op)
			}
			all = append(all, ended{op, b.Receiver.Counts(op.EffectiveID())})
			if i%8 == 2 { // another operation of the same resource follows at once
				request := randomRequest(rnd, op.Spec.ResourceID)
				op = b.End(b.Schedule(request))
				all = append(all, ended{op, b.Receiver.Counts(op.EffectiveID())})
			}
		}
		stop()
		for _, e := range all {
			problems := e.check(restarts, 0)
			if diff := cmp.Diff(e.called, b.Receiver.Counts(e.EffectiveID())); diff != "" {
				problems = append(problems, "calls after the end: "+diff)
			}
			if len(problems) > 0 {
				t.Errorf("FAIRLEAD_SEED=%d: %s\n%s\n%+v\n%s", seed, strings.Join(problems, "\n"), e.Name, e.Status,
					strings.Join(d.of(e.Name), "\n"))
			}
		}
		for _, e := range all {
			for _, other := range all {
				began, its := b.Receiver.FirstCall(e.EffectiveID()), b.Receiver.FirstCall(other.EffectiveID())
				if !began.IsZero() && e.excludes(other) && its.After(began) && its.Before(e.Status.FinishedAt.Time) {
					t.Errorf("FAIRLEAD_SEED=%d: %s began before %s, which has the same lock, had ended", seed, other.Name, e.Name)
				}
			}
		}
		reported := recorder.Told()
		slices.Sort(reported)
		if once := slices.Compact(slices.Clone(reported)); len(once) != len(reported) {
			t.Errorf("FAIRLEAD_SEED=%d: some failures were reported more than once: %q", seed, reported)
		}
		t.Logf("%d requests, %d of them disturbed", d.all, d.disturbed)
	})
}

// tries has the number of calls of each webhook. "bad" fails, and the others succeed.
var tries = map[string]int{"good": 1, "flaky": 3, "slow": 4, "bad": 1, "undo": 1, "tell": 2, "back": 1}

func answerByName(w http.ResponseWriter, _ *http.Request, path string, call int) {
	switch {
	case path == "/bad":
		w.WriteHeader(http.StatusBadRequest)
	case path == "/slow":
		w.Header().Set("Location", "/jobs/1")
		w.WriteHeader(http.StatusAccepted)
	case path == "/jobs/1" && call < tries["slow"]:
		_, _ = io.WriteString(w, `{"status":"IN_PROGRESS"}`)
	case path == "/jobs/1":
		_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
	case call < tries[path[1:]]:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

func randomRequest(rnd *rand.Rand, id string) operations.Request {
	r := operations.Request{Resource: operations.Resource{Type: "Application", ID: id}, Type: operations.Update}
	for _, i := range rnd.Perm(4)[:rnd.IntN(5)] {
		r.Webhooks = append(r.Webhooks, []string{"good", "flaky", "slow", "bad"}[i])
	}
	if rnd.IntN(2) == 0 {
		r.Execution = operations.Parallel
	}
	if rnd.IntN(2) == 0 {
		r.Compensate = []string{"undo"}
	}
	if rnd.IntN(2) == 0 {
		r.Notify = "tell"
	}
	if rnd.IntN(4) == 0 {
		r.Lock = []operations.Resource{{Type: "Database", ID: fmt.Sprint(rnd.IntN(3))}}
	}
	return r
}

// ended is an operation at its end, and the calls made for it by then. A deleted operation has the state in which it
// was created.
type ended struct {
	*v1alpha1.Operation
	called map[string]int
}

// excludes reports whether a lock of an operation keeps another one from its calls. The end of a deleted operation is
// unknown, so it excludes none.
func (op ended) excludes(other ended) bool {
	if op.Operation == other.Operation || !op.Terminal() {
		return false
	}
	for mine := range op.Locks() {
		for its := range other.Locks() {
			if mine == its {
				return true
			}
		}
	}
	return false
}

// check returns what is wrong with the end of a random request. restarts is how often the executor was restarted
// meanwhile. Each of the moves to another replica may leave a recorded attempt to that replica, which records its own.
func (op ended) check(restarts, moves int) (problems []string) {
	called, gone := maps.Clone(op.called), !op.Terminal()
	check := func(purpose webhook.Purpose, id string, least, most int) {
		key := strings.TrimPrefix(webhook.CallID("ns", op.EffectiveID(), id, purpose), "ns."+op.EffectiveID()+".")
		if most > 0 {
			most += restarts
		}
		if gone {
			least = 0
		}
		if n := called[key]; n < least || n > most {
			problems = append(problems, fmt.Sprintf("%s was called %d times, not %d to %d", key, n, least, most))
		}
		delete(called, key)
	}
	bad := slices.Index(op.Spec.WebhookIDs, "bad")
	succeeded := 0
	for i, id := range op.Spec.WebhookIDs {
		least, most := tries[id], tries[id]
		switch {
		case op.Spec.CancelRequested:
			least = 0
		case bad < 0 || id == "bad":
		case op.Spec.Execution == v1alpha1.ExecutionParallel: // the failure of the other webhook may cancel it
			least = 0
		case i > bad:
			least, most = 0, 0
		}
		check(webhook.Main, id, least, most)
		s := op.Status.Webhooks
		at := slices.IndexFunc(s, func(e v1alpha1.WebhookCallStatus) bool { return e.WebhookID == id })
		if at < 0 || s[at].State != v1alpha1.PhaseSuccess {
			continue
		}
		succeeded++
		n, want := s[at].RetriesCount, int32(tries[id]-1)
		if id == "flaky" && restarts == 0 && (n < want || n > want+int32(moves)) {
			problems = append(problems, fmt.Sprintf("%s has %d retries in the status", id, s[at].RetriesCount))
		}
	}
	want, undone := v1alpha1.PhaseSuccess, 0
	if bad >= 0 {
		want, undone = v1alpha1.PhaseFailed, min(succeeded, len(op.Spec.CompensateWebhookIDs))
	}
	if reason := operations.ViewOf(op.Operation).Reason; reason == v1alpha1.ReasonCanceled && op.Spec.CancelRequested {
		want, undone = v1alpha1.PhaseFailed, min(succeeded, len(op.Spec.CompensateWebhookIDs))
	}
	if gone {
		want, undone = "", len(op.Spec.CompensateWebhookIDs)
	}
	if op.Status.Phase != want {
		problems = append(problems, fmt.Sprintf("the phase is %s", op.Status.Phase))
	}
	check(webhook.Compensate, "undo", undone, undone)
	if op.Spec.NotifyWebhookID != "" {
		check(webhook.Notify, "tell", tries["tell"], tries["tell"])
	}
	for key, n := range called {
		problems = append(problems, fmt.Sprintf("%s was called %d times, want none", key, n))
	}
	return problems
}

// disturber makes requests of the executor to the API server fail.
type disturber struct {
	b    *bench
	seed uint64

	mu             sync.Mutex
	all, disturbed int
	sent           map[string]int // requests, by name of the operation
	log            []string
}

func (d *disturber) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	_, name, ok := strings.Cut(r.URL.Path, "/operations/")
	if !ok {
		return next.RoundTrip(r)
	}
	name, _, _ = strings.Cut(name, "/")
	d.mu.Lock()
	d.sent[name]++
	d.all++
	fault := disturb.Choose(d.seed, name, d.sent[name])
	if fault != disturb.None {
		d.disturbed++
	}
	d.log = append(d.log, fmt.Sprint(name, " ", r.Method, " ", r.URL.Path[strings.LastIndex(r.URL.Path, "/"):], " ",
		fault))
	d.mu.Unlock()
	return fault.RoundTrip(r, next, func() {
		if r.Method != http.MethodGet {
			d.b.Touch(name)
		}
	})
}

// of returns the requests made for an operation.
func (d *disturber) of(name string) (lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range d.log {
		if strings.HasPrefix(line, name+" ") {
			lines = append(lines, strings.TrimPrefix(line, name+" "))
		}
	}
	return lines
}
