package executor_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// quick makes the retry intervals of a Webhook as short as allowed.
func quick(s *v1alpha1.WebhookSpec) {
	s.Retry = v1alpha1.WebhookRetry{
		MaxAttempts: 100, InitialInterval: metav1.Duration{Duration: 50 * time.Millisecond},
		MaxInterval: metav1.Duration{Duration: 50 * time.Millisecond},
	}
	s.Breaker.Failures = 1000
}

// recordedCall reports whether the API server has the attempt and the key of a call.
func (b *bench) recordedCall(key string) bool {
	op, err := b.Scheduler.Get(b.Ctx, app("quick"))
	return err == nil && recordedIn(op, key)
}

// TestRepeatedTriesAreWrittenEachSecond: a receiver that fails at once causes one write a second, however often it is
// called. The attempt and the key of each repeated try are recorded before the try is made.
func TestRepeatedTriesAreWrittenEachSecond(t *testing.T) {
	const tries = 40
	b := setup(t)
	var writes, unrecorded atomic.Int32
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, n int) {
		if n > 1 && !b.recordedCall(r.Header.Get("Idempotency-Key")) {
			unrecorded.Add(1)
		}
		if n < tries {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	b.Webhook("hook", quick)
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/status") &&
			strings.Contains(r.URL.Path, "/operations/") {
			writes.Add(1)
		}
		return next.RoundTrip(r)
	})
	b.Start(func(o *executor.Options) { o.Calls = calls })
	began := time.Now()
	op := b.End(b.Schedule(operations.Request{Webhooks: []string{"hook"}, Resource: app("quick")}))
	took := time.Since(began)
	if op.Status.Phase != v1alpha1.PhaseSuccess || op.Status.Webhooks[0].RetriesCount != tries-1 {
		t.Errorf("the operation ended with %+v", op.Status)
	}
	if n := unrecorded.Load(); n != 0 {
		t.Errorf("%d tries were made without a record of their attempt and key", n)
	}
	// The first failure and the attempt after it, the end, and one write for each second begun.
	if n, most := int(writes.Load()), 4+int(took/time.Second)+1; n > most {
		t.Errorf("%d writes of the status in %v, want at most %d", n, took, most)
	}
}

// TestRepeatedTriesSurviveTheEndOfTheProcess stops an executor during a try that is not written, and blocks its last
// writes, as if it were killed. The next executor uses the same key.
func TestRepeatedTriesSurviveTheEndOfTheProcess(t *testing.T) {
	b := setup(t)
	called := make(chan string, 1)
	hold := make(chan struct{})
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, n int) {
		switch {
		case n == 10:
			called <- r.Header.Get("Idempotency-Key")
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		case n < 20:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	b.Webhook("hook", quick)
	var killed atomic.Bool
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if killed.Load() && r.Method != http.MethodGet {
			return nil, errors.New("the process was killed")
		}
		return next.RoundTrip(r)
	})
	stop := b.Start(func(o *executor.Options) { o.Calls = calls })
	op := b.Schedule(operations.Request{Webhooks: []string{"hook"}, Resource: app("quick")})
	if key := b.Received(called); !b.recordedCall(key) {
		t.Errorf("the call with key %s is not recorded", key)
	}
	killed.Store(true)
	stop()
	close(hold)
	b.Start(nil)
	op = b.End(op)
	if op.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("the operation ended with %+v", op.Status)
	}
	if counts := b.Receiver.Counts(op.EffectiveID()); len(counts) != 1 || counts["hook"] != 20 {
		t.Errorf("calls by key: %v, want 20 of one key", counts)
	}
}

// TestDrainWritesRepeatedTries: an executor that drains records the unwritten tries.
func TestDrainWritesRepeatedTries(t *testing.T) {
	b := setup(t)
	called := make(chan string, 100)
	b.Receiver.Answer = func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
		w.WriteHeader(http.StatusServiceUnavailable)
		called <- path
	}
	b.Webhook("hook", quick)
	var e *executor.Executor
	b.StartWith(nil, func(made *executor.Executor) { e = made })
	op := b.Schedule(operations.Request{Webhooks: []string{"hook"}, Resource: app("quick")})
	for range 8 {
		b.Received(called)
	}
	if err := e.Drain(b.Ctx); err != nil {
		t.Fatal(err)
	}
	calls := b.Receiver.Counts(op.EffectiveID())["hook"]
	op, err := b.Scheduler.Get(b.Ctx, app("quick"))
	if err != nil {
		t.Fatal(err)
	}
	if got := int(op.Status.Webhooks[0].RetriesCount); got != calls-1 || op.Status.Webhooks[0].NextAttemptAt == nil {
		t.Errorf("after %d calls the status says %+v", calls, op.Status.Webhooks[0])
	}
}

// TestRepeatsOfATenant: many operations of one tenant try and poll at the shortest intervals. Together they write at
// most ten statuses a second.
func TestRepeatsOfATenant(t *testing.T) {
	const tried, polled, window = 16, 8, 3 * time.Second
	b := setup(t)
	var (
		mu       sync.Mutex
		answered = map[string]int{} // by path and key, or job
		began    time.Time          // when every call had been repeated
		counted  int
		over     = make(chan struct{})
	)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		switch {
		case path == "/poll":
			w.Header().Set("Location", "/jobs/"+r.Header.Get("Idempotency-Key"))
			w.WriteHeader(http.StatusAccepted)
			return
		case r.Method == http.MethodGet:
			answered[path]++
			_, _ = fmt.Fprintf(w, `{"status":"IN_PROGRESS","message":"%d"}`, answered[path])
		default:
			answered[path+r.Header.Get("Idempotency-Key")]++
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		switch {
		case counted < 0:
		case !began.IsZero():
			if now.Sub(began) >= window {
				counted = -1
				close(over)
			}
		case len(answered) == tried+polled:
			for _, n := range answered {
				if n < 4 {
					return
				}
			}
			began = now
		}
	}
	b.Webhook("hook", quick)
	b.Webhook("poll", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 50 * time.Millisecond}
	})
	var writes int
	calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method != http.MethodGet && strings.HasSuffix(r.URL.Path, "/status") &&
			strings.Contains(r.URL.Path, "/operations/") {
			mu.Lock()
			if !began.IsZero() && counted >= 0 {
				writes++
			}
			mu.Unlock()
		}
		return next.RoundTrip(r)
	})
	b.Start(func(o *executor.Options) { o.Calls = calls })
	for i := range tried + polled {
		name := "hook"
		if i >= tried {
			name = "poll"
		}
		b.Schedule(operations.Request{Webhooks: []string{name}, Resource: app(fmt.Sprint(i))})
	}
	select {
	case <-over:
	case <-b.Ctx.Done():
		t.Fatal("the calls were not repeated")
	}
	mu.Lock()
	defer mu.Unlock()
	if most := int(window/(100*time.Millisecond)) + 2; writes > most {
		t.Errorf("%d writes of the status in %v, want at most %d", writes, window, most)
	} else if writes < 5 {
		t.Errorf("%d writes of the status in %v: the tries are not recorded", writes, window)
	}
}
