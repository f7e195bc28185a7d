package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// stopwatch is a clock that only the test advances. So no call takes half a second, however slow the machine is.
type stopwatch struct {
	began  time.Time
	passed atomic.Int64
}

func newStopwatch() *stopwatch { return &stopwatch{began: time.Now()} }

func (s *stopwatch) now() time.Time       { return s.began.Add(time.Duration(s.passed.Load())) }
func (s *stopwatch) pass(d time.Duration) { s.passed.Add(int64(d)) }

// tally counts the written statuses, by name of the operation.
type tally struct {
	mu      sync.Mutex
	written map[string]int
	failed  int
	failing string // the operation whose status cannot be written; empty: none
	flying  map[string]int
	landed  *sync.Cond // with mu
}

func (b *bench) tally() (*tally, *call.Client) {
	t := &tally{written: make(map[string]int), flying: make(map[string]int)}
	t.landed = sync.NewCond(&t.mu)
	return t, b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		_, name, _ := strings.Cut(r.URL.Path, "/operations/")
		name, status := strings.CutSuffix(name, "/status")
		if !status || r.Method != http.MethodPut {
			return next.RoundTrip(r)
		}
		t.mu.Lock()
		fail := name == t.failing
		if fail {
			t.failed++
		} else {
			t.flying[name]++
		}
		t.mu.Unlock()
		if fail {
			return nil, errors.New("connection lost")
		}
		answer, err := next.RoundTrip(r)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.flying[name]--
		if err == nil && answer.StatusCode == http.StatusOK {
			t.written[name]++
		}
		t.landed.Broadcast()
		return answer, err
	})
}

// of returns how often the status of an operation was written. A test may see the outcome before the answer to its
// write, so of waits for that.
func (t *tally) of(op *v1alpha1.Operation) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.flying[op.Name] > 0 {
		t.landed.Wait()
	}
	return t.written[op.Name]
}

func (t *tally) fail(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failing = name
}

func (t *tally) failures() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// recordedFirst runs an operation and reports whether its call was recorded before it was made.
func (b *bench) recordedFirst(resource operations.Resource) bool {
	b.T.Helper()
	picked := make(chan bool, 8)
	b.Receiver.Peek(func() {
		op, err := b.Scheduler.Get(b.Ctx, resource)
		if err != nil && b.Ctx.Err() == nil {
			b.T.Error(err)
			return
		}
		picked <- op.PickedUp()
	})
	op := b.End(b.Schedule(operations.Request{Resource: resource, Webhooks: []string{"peek"}}))
	if v := operations.ViewOf(op); v.Status != operations.Succeeded {
		b.T.Errorf("outcome %+v", v)
	}
	return <-picked
}

// proves runs operations until the executor no longer records calls first.
func (b *bench) proves() {
	b.T.Helper()
	b.Webhook("peek", nil)
	for i := 0; b.recordedFirst(operations.Resource{Type: "proof", ID: fmt.Sprint(i)}); i++ {
		if b.Ctx.Err() != nil {
			b.T.Fatal("every call is recorded first")
		}
	}
}

// notRecorded fails the test if the current call of the usual operation is recorded.
func (b *bench) notRecorded() {
	b.T.Helper()
	if op := b.Get(); op.PickedUp() {
		b.T.Fatalf("the call was recorded first: %+v", op.Status)
	}
}

// TestUnrecordedCall makes a call that only the operation itself records. Its outcome is the only write, and has all
// details.
func TestUnrecordedCall(t *testing.T) {
	b := setup(t)
	b.Webhook("work", nil)
	asked, open := b.gate("/work")
	counts, calls := b.tally()
	b.Start(func(o *executor.Options) { o.Calls, o.Now = calls, newStopwatch().now })
	b.proves()
	op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
	b.Received(asked)
	b.notRecorded()
	open()
	got := b.End(op)
	if n := counts.of(op); n != 1 {
		t.Errorf("its status was written %d times", n)
	}
	w := got.Status.Webhooks[0]
	if s := got.Status; s.Phase != v1alpha1.PhaseSuccess || s.AcceptedVersion != op.ResourceVersion ||
		w.StartedAt == nil || w.FinishedAt == nil {
		t.Errorf("it became %+v", got.Status)
	}
	if want := b.Namespace + "." + op.EffectiveID() + ".work"; w.IdempotencyKey != want ||
		w.AttemptID != executor.FirstAttempt(op) {
		t.Errorf("the call was %+v", w)
	}
	if id, err := uuid.Parse(w.AttemptID); err != nil || id.Version() != 5 {
		t.Errorf("the attempt is %s", w.AttemptID)
	}
}

// TestUnrecordedPolledCall makes the first call of a Webhook that is polled. Its answer, with the URL to poll, is the
// only write of the status before the operation waits. The finalizer is added during the call. A call of a Webhook that
// calls back is recorded first.
func TestUnrecordedPolledCall(t *testing.T) {
	for mode, writes := range map[v1alpha1.WebhookMode]int{v1alpha1.ModeAsync: 1, v1alpha1.ModeAsyncCallback: 2} {
		t.Run(string(mode), func(t *testing.T) {
			b := setup(t)
			b.Webhook("work", func(s *v1alpha1.WebhookSpec) {
				s.Mode, s.Poll.Interval = mode, metav1.Duration{Duration: time.Hour}
			})
			asked, open := b.gate("/work")
			gated := b.Receiver.Answer
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
				if gated(w, r, path, n); path == "/work" {
					if mode == v1alpha1.ModeAsync {
						w.Header().Set("Location", path)
					}
					w.WriteHeader(http.StatusAccepted)
				}
			}
			counts, calls := b.tally()
			b.Start(func(o *executor.Options) {
				o.Calls, o.Now = calls, newStopwatch().now
				o.PublicURL, o.CallbackKey = "https://example.com", []byte("key")
			})
			b.proves()
			op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
			b.Received(asked)
			if picked := b.Get().PickedUp(); picked != (mode == v1alpha1.ModeAsyncCallback) {
				t.Errorf("the call was recorded first: %v", picked)
			}
			held := func() bool { return slices.Contains(b.Get().Finalizers, v1alpha1.Finalizer) }
			if mode == v1alpha1.ModeAsync {
				b.Eventually("held", held)
				b.notRecorded()
			}
			open()
			b.Eventually("waiting", func() bool {
				calls := b.Get().Status.Webhooks
				return len(calls) == 1 && calls[0].LastStatusCode != 0 && held()
			})
			if n := counts.of(op); n != writes {
				t.Errorf("its status was written %d times, not %d", n, writes)
			}
			got := b.Get().Status
			if len(got.Webhooks) != 1 {
				t.Fatalf("it became %+v", got)
			}
			w := got.Webhooks[0]
			if want := b.Namespace + "." + op.EffectiveID() + ".work"; got.AcceptedVersion != op.ResourceVersion ||
				w.IdempotencyKey != want || w.AttemptID != executor.FirstAttempt(op) || w.StartedAt == nil ||
				w.LastStatusCode != http.StatusAccepted || (w.WebhookPollURL == "") == (mode == v1alpha1.ModeAsync) {
				t.Errorf("it became %+v", got)
			}
		})
	}
}

// TestFinalizerFailsDuringCall makes the write of the finalizer fail. The answer of the call is recorded nevertheless,
// and the finalizer is added later.
func TestFinalizerFailsDuringCall(t *testing.T) {
	b := setup(t)
	b.Webhook("work", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: time.Hour}
	})
	asked, open := b.gate("/work")
	gated := b.Receiver.Answer
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		if gated(w, r, path, n); path == "/work" {
			w.Header().Set("Location", path)
			w.WriteHeader(http.StatusAccepted)
		}
	}
	var refused, healed atomic.Bool
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if name := v1alpha1.OperationName(shop.Type, shop.ID); !healed.Load() && r.Method == http.MethodPatch &&
			strings.HasSuffix(r.URL.Path, "/operations/"+name) {
			refused.Store(true)
			return nil, errors.New("connection lost")
		}
		return next.RoundTrip(r)
	})
	b.Start(func(o *executor.Options) {
		o.Calls, o.Policy, o.Now = calls, call.Policy{Retries: -1}, newStopwatch().now
	})
	b.proves()
	op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
	b.Received(asked)
	b.Eventually("refused", refused.Load)
	b.notRecorded()
	open()
	b.Eventually("recorded", func() bool { return len(b.Get().Status.Webhooks) == 1 })
	got := b.Get()
	if w := got.Status.Webhooks[0]; w.WebhookPollURL == "" || w.RetriesCount != 0 ||
		w.AttemptID != executor.FirstAttempt(op) {
		t.Errorf("it became %+v", got.Status)
	}
	if slices.Contains(got.Finalizers, v1alpha1.Finalizer) {
		t.Error("the finalizer was added")
	}
	healed.Store(true)
	b.Eventually("held", func() bool { return slices.Contains(b.Get().Finalizers, v1alpha1.Finalizer) })
}

// TestLongCallIsRecorded lets a call take half a second while others write labels. The record of the call has the place
// of the creation.
func TestLongCallIsRecorded(t *testing.T) {
	b := setup(t)
	b.Webhook("work", nil)
	asked, open := b.gate("/work")
	counts, calls := b.tally()
	watch := newStopwatch()
	b.Start(func(o *executor.Options) { o.Calls, o.Now = calls, watch.now })
	b.proves()
	op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
	b.Received(asked)
	watch.pass(499 * time.Millisecond)
	b.Touch(op.Name)
	b.notRecorded()
	watch.pass(time.Millisecond)
	b.Eventually("recorded", func() bool { return len(b.Get().Status.Webhooks) == 1 })
	got := b.Get().Status
	attempt := executor.FirstAttempt(op)
	if w := got.Webhooks[0]; got.AcceptedVersion != op.ResourceVersion || w.AttemptID != attempt ||
		w.State != v1alpha1.PhaseInProgress {
		t.Errorf("recorded is %+v", got)
	}
	open()
	got = b.End(op).Status
	if w := got.Webhooks[0]; got.Phase != v1alpha1.PhaseSuccess || w.RetriesCount != 0 || w.AttemptID != attempt {
		t.Errorf("it became %+v", got)
	}
	if n := counts.of(op); n != 2 {
		t.Errorf("its status was written %d times", n)
	}
}

// TestLockDuringUnrecordedCall schedules an operation that locks a resource while an unrecorded call about it is under
// way. Others write to the object of that call. The lock waits for the end of the call, even if another executor takes
// over.
func TestLockDuringUnrecordedCall(t *testing.T) {
	type disturbances []func(b *bench, name string)
	label := func(b *bench, name string) { b.Touch(name) }
	merge := func(body string) func(*bench, string) {
		return func(b *bench, _ string) {
			if err := b.Do(call.Request{Verb: call.VerbPatch, PatchType: types.MergePatchType, Body: []byte(body)}); err != nil {
				b.T.Error(err)
			}
		}
	}
	locked := []operations.Resource{shop}
	cancel := merge(`{"spec":{"cancelRequested":true}}`)
	hold, remove := merge(`{"metadata":{"finalizers":["example.com/hold"]}}`), func(b *bench, name string) {
		b.Delete(name)
	}
	tests := map[string]struct {
		reason string
		does   disturbances
		crash  bool
		want   string // reason of the end
		gone   bool
	}{
		"Label": {
			reason: "A label changes no place.",
			does:   disturbances{label}, want: v1alpha1.ReasonSucceeded,
		},
		"Cancel": {
			reason: "A cancellation ends first.",
			does:   disturbances{label, cancel}, want: v1alpha1.ReasonCanceled,
		},
		"Delete": {
			reason: "No operation waits for a deleted one.",
			does:   disturbances{label, remove}, gone: true,
		},
		"DeleteHeld": {
			reason: "A deletion is a cancellation.",
			does:   disturbances{hold, remove}, want: v1alpha1.ReasonCanceled,
		},
		"Crash": {
			reason: "A successor knows nothing of the call.", crash: true,
			does: disturbances{label}, want: v1alpha1.ReasonSucceeded,
		},
		"CrashCancel": {
			reason: "Nor of its cancellation.", crash: true,
			does: disturbances{label, cancel}, want: v1alpha1.ReasonCanceled,
		},
		"CrashDeleted": {
			reason: "Nor that it existed.", crash: true,
			does: disturbances{label, remove}, gone: true,
		},
	}
	for name, tc := range tests {
		for _, when := range []string{"LockFirst", "LockLast"} {
			t.Run(name+when, func(t *testing.T) {
				b := setup(t)
				b.Webhook("work", nil)
				b.Webhook("next", nil)
				asked, answer := make(chan string, 4), make(chan struct{})
				var opened atomic.Bool
				b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
					switch {
					case path == "/work":
						asked <- path
						operationbed.Pause(r, answer)
					case tc.want == v1alpha1.ReasonSucceeded && !opened.Load():
						t.Errorf("%s A call is made under the lock while the other one is under way", tc.reason)
					}
				}
				stop := b.Start(func(o *executor.Options) { o.Now = newStopwatch().now })
				b.proves()
				op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
				b.Received(asked)
				b.notRecorded()
				if tc.crash {
					stop()
				}
				var locking *v1alpha1.Operation
				lock := func() {
					locking = b.Schedule(operations.Request{Resource: app("other"), Webhooks: []string{"next"}, Lock: locked})
				}
				if when == "LockFirst" {
					lock()
				}
				for _, do := range tc.does {
					do(b, op.Name)
				}
				if when == "LockLast" {
					lock()
				}
				if tc.crash {
					b.Start(func(o *executor.Options) { o.Now = newStopwatch().now })
				}
				if tc.want == v1alpha1.ReasonSucceeded {
					if tc.crash {
						b.Received(asked)
					}
					b.waitingFor(app("other"), op)
					last := b.Schedule(operations.Request{Resource: app("last"), Webhooks: []string{"next"}, Lock: locked})
					b.waitingFor(app("last"), locking) // so all earlier changes are known
					opened.Store(true)
					close(answer)
					defer b.End(last)
				}
				if v := operations.ViewOf(b.End(locking)); v.Status != operations.Succeeded {
					t.Errorf("%s The lock became %+v", tc.reason, v)
				}
				most := 1
				if tc.crash {
					most = 2
				}
				if n := b.Receiver.Counts(op.EffectiveID())["work"]; n > most {
					t.Errorf("%s %d calls", tc.reason, n)
				}
				if tc.gone {
					return
				}
				ended := b.End(op)
				c := meta.FindStatusCondition(ended.Status.Conditions, v1alpha1.ConditionError)
				if v := operations.ViewOf(ended); c.Reason != tc.want || !v.Terminal() {
					t.Errorf("%s It became %+v", tc.reason, v)
				}
				merge(`{"metadata":{"finalizers":null}}`)(b, op.Name)
			})
		}
	}
}

// TestAcceptedAfterALock schedules and labels an operation behind a waiting lock while no executor runs. It might have
// been called before, so the next executor must find out that it comes after the lock.
func TestAcceptedAfterALock(t *testing.T) {
	b := setup(t)
	b.Webhook("hold", nil)
	asked, open := b.gate("/hold")
	stop := b.Start(nil)
	lock := []operations.Resource{shop}
	first := b.Schedule(operations.Request{Resource: app(1), Webhooks: []string{"hold"}, Lock: lock})
	b.Received(asked)
	second := b.Schedule(operations.Request{Resource: app(2), Webhooks: []string{"hold"}, Lock: lock})
	b.waitingFor(app(2), first)
	stop()
	third := b.Schedule(operations.Request{Webhooks: []string{"hold"}})
	b.Touch(third.Name)
	b.Start(nil)
	b.Received(asked)
	b.waitingFor(shop, second)
	open()
	var ends []time.Time
	for _, op := range []*v1alpha1.Operation{first, second, third} {
		if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess {
			t.Errorf("%s became %+v", op.Name, got.Status)
		} else {
			ends = append(ends, got.Status.FinishedAt.Time)
		}
	}
	if len(ends) == 3 && (ends[1].Before(ends[0]) || ends[2].Before(ends[1])) {
		t.Errorf("the ends are %v", ends)
	}
}

// TestKilledDuringUnrecordedCall kills a process with SIGKILL during an unrecorded call. The next process makes the
// same attempt with the same key, and there is one outcome.
func TestKilledDuringUnrecordedCall(t *testing.T) {
	for _, mode := range []v1alpha1.WebhookMode{v1alpha1.ModeSync, v1alpha1.ModeAsync} {
		t.Run(string(mode), func(t *testing.T) {
			b := setup(t)
			b.Webhook("work", func(s *v1alpha1.WebhookSpec) {
				s.Mode, s.Poll.Interval = mode, metav1.Duration{Duration: 50 * time.Millisecond}
			})
			asked := make(chan string, 4)
			var made atomic.Int32
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
				switch {
				case path == "/status":
					_, _ = io.WriteString(w, `{"status":"SUCCESS"}`)
					return
				case path != "/work":
					return
				}
				n := made.Add(1)
				asked <- r.Header.Get("Idempotency-Key")
				if n == 1 {
					<-r.Context().Done()
				} else if mode == v1alpha1.ModeAsync {
					w.Header().Set("Location", "/status")
					w.WriteHeader(http.StatusAccepted)
				}
			}
			m := b.mortal("", "")
			m.Frozen = true
			ctx, kill := context.WithCancel(b.Ctx)
			var running sync.WaitGroup
			running.Go(func() {
				if err := m.live(ctx, t); ctx.Err() == nil {
					t.Errorf("the first process: %v", err)
				}
			})
			defer running.Wait()
			defer kill()
			b.proves()
			op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
			first := b.Received(asked)
			b.notRecorded()
			kill()
			running.Wait()
			b.notRecorded()
			b.Touch(op.Name)
			counts, calls := b.tally()
			b.Start(func(o *executor.Options) { o.Calls = calls })
			if second := b.Received(asked); second != first {
				t.Errorf("the key was %s, and is %s", first, second)
			}
			got := b.End(op).Status
			w := got.Webhooks[0]
			if got.Phase != v1alpha1.PhaseSuccess || w.AttemptID != executor.FirstAttempt(op) || w.RetriesCount != 0 ||
				w.IdempotencyKey != first {
				t.Errorf("it became %+v", got)
			}
			if n := made.Load(); n != 2 {
				t.Errorf("%d calls", n)
			}
			most := 2
			if mode == v1alpha1.ModeAsync {
				most = 3
			}
			if n := counts.of(op); n < 1 || n > most {
				t.Errorf("its status was written %d times", n)
			}
		})
	}
}

// TestRecordedFirstAfterAFailure makes a status write fail. Until one succeeds, calls of that namespace are recorded
// first, and those of others are not.
func TestRecordedFirstAfterAFailure(t *testing.T) {
	b := setup(t)
	other := setupOn(t, b.Config, "other")
	b.Others = []string{other.Namespace}
	b.Webhook("work", nil)
	counts, calls := b.tally()
	b.Start(func(o *executor.Options) {
		o.Calls, o.Policy, o.Now = calls, call.Policy{Retries: -1}, newStopwatch().now
	})
	b.proves()
	other.proves()
	counts.fail(v1alpha1.OperationName(shop.Type, shop.ID))
	op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
	b.Eventually("not written", func() bool { return counts.failures() > 0 })
	if other.recordedFirst(app(1)) {
		t.Error("another namespace is affected")
	}
	if !b.recordedFirst(app(1)) {
		t.Error("a call was made although it may be impossible to record it")
	}
	counts.fail("")
	if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess || b.Receiver.Counts(op.EffectiveID())["work"] != 1 {
		t.Errorf("it became %+v after %v", got.Status, b.Receiver.Counts(op.EffectiveID()))
	}
	if b.recordedFirst(app(2)) {
		t.Error("a call is recorded first although statuses are written again")
	}
}

// TestNotRecordedFirstAfterADeletion deletes an operation just before its outcome is written. Other operations are
// still not recorded first.
func TestNotRecordedFirstAfterADeletion(t *testing.T) {
	b := setup(t)
	b.Webhook("work", nil)
	gone := v1alpha1.OperationName(shop.Type, shop.ID)
	refused := make(chan int, 8)
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/"+gone+"/status") {
			return next.RoundTrip(r)
		}
		b.Delete(gone)
		answer, err := next.RoundTrip(r.Clone(context.WithoutCancel(r.Context()))) // the deletion cancels the context
		if err == nil {
			refused <- answer.StatusCode
		}
		return answer, err
	})
	b.Start(func(o *executor.Options) { o.Calls, o.Now = calls, newStopwatch().now })
	b.proves()
	b.Schedule(operations.Request{Webhooks: []string{"work"}})
	select {
	case code := <-refused:
		if code != http.StatusNotFound {
			t.Fatalf("the answer to the write was %d", code)
		}
	case <-b.Ctx.Done():
		t.Fatal("no status was written")
	}
	if b.recordedFirst(app(1)) {
		t.Error("a call is recorded first since another operation was deleted")
	}
}

// TestCallbackOfUnrecordedCall lets the receiver of a synchronous call use its callback before it answers.
func TestCallbackOfUnrecordedCall(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- operationbed.CallbackIn(r)
		operationbed.Pause(r, answer)
	}
	b.Webhook("work", func(s *v1alpha1.WebhookSpec) { s.Request.Body = new(`{"callback": "{{.CallbackURL}}"}`) })
	var e *executor.Executor
	b.StartWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
		o.Now = newStopwatch().now
	}, func(got *executor.Executor) { e = got })
	b.proves()
	op := b.Schedule(operations.Request{Webhooks: []string{"work"}})
	tok := operationbed.Token(b.Received(asked))
	b.notRecorded()
	taker := e.Taker()
	if err := taker.Take(b.Ctx, tok, false, "no room"); err != nil {
		t.Fatal(err)
	}
	if err := taker.Take(b.Ctx, tok, true, ""); !errors.Is(err, operations.ErrCallbackUsed) {
		t.Errorf("a token used twice: %v", err)
	}
	close(answer)
	got := b.End(op)
	if v := operations.ViewOf(got); v.Status != operations.Failed || v.Error != "no room" ||
		got.Status.Webhooks[0].AttemptID != executor.FirstAttempt(op) {
		t.Errorf("it became %+v", got.Status)
	}
}
