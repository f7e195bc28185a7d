package executor_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestAttempts: the tries and polls of an unfinished operation are remembered with their times and statuses, including
// the current one. Operations whose first try succeeds are not remembered, nor are tries of other processes.
func TestAttempts(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch {
		case path == "/fine":
		case path == "/job" && n == 1:
			w.Header().Set("Location", "/job/1")
			w.WriteHeader(http.StatusAccepted)
		case path == "/job/1":
			select {
			case asked <- path:
			case <-answer:
			}
			operationbed.Pause(r, answer)
			_, _ = w.Write([]byte(`{"status":"SUCCEEDED"}`))
		case n < 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	quick := func(s *v1alpha1.WebhookSpec) {
		s.Retry.InitialInterval = metav1.Duration{Duration: 100 * time.Millisecond}
		s.Retry.MaxInterval = metav1.Duration{Duration: 100 * time.Millisecond}
	}
	for _, name := range []string{"fine", "again"} {
		b.Webhook(name, quick)
	}
	b.Webhook("job", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 100 * time.Millisecond}
	})
	begun := time.Now()
	r := b.Prepare(b.Config, nil)
	r.Begin()
	of := func(op *v1alpha1.Operation) (all []string) {
		a := r.Attempts(b.Ctx, store.Key{Namespace: op.Namespace, Name: op.Name}, op.EffectiveID())
		last := begun
		for _, one := range a.Last {
			what := "try"
			if one.Poll {
				what = "poll"
			}
			all = append(all, fmt.Sprintf("%s%s %s %d %s %t", one.Purpose, one.Webhook, what, one.Status, one.Verdict,
				one.Ended.IsZero()))
			if one.Began.Before(last) || !one.Ended.IsZero() && one.Ended.Before(one.Began) || one.Ended.After(time.Now()) {
				t.Errorf("%s lasted from %v to %v, the previous one started at %v", what, one.Began, one.Ended, last)
			}
			last = one.Began
		}
		if a.Since.Before(begun.Add(-time.Minute)) || a.Since.After(time.Now()) || a.Dropped > 0 || a.Full {
			t.Errorf("known since %v: %+v", a.Since, a)
		}
		return all
	}
	op := b.Schedule(operations.Request{Webhooks: []string{"again"}, Resource: app("again")})
	b.End(op)
	want := []string{"again try 503 Retry false", "again try 503 Retry false", "again try 200 Succeeded false"}
	if diff := cmp.Diff(want, of(op)); diff != "" {
		t.Errorf("of one that succeeds later, -want +got:\n%s", diff)
	}
	if fine := b.Schedule(operations.Request{Webhooks: []string{"fine"}, Resource: app("fine")}); of(b.End(fine)) != nil {
		t.Errorf("of an operation that succeeds at once: %q", of(fine))
	}
	job := b.Schedule(operations.Request{Webhooks: []string{"job"}, Resource: app("job")})
	b.Received(asked)
	b.Eventually("the poll is remembered", func() bool {
		return cmp.Equal([]string{"job try 202 Accepted false", "job poll 0 None true"}, of(job))
	})
	r.Stop()
	next := b.Prepare(b.Config, nil)
	r.Executor = next.Executor
	next.Begin()
	b.Received(asked)
	if got := of(job); got != nil {
		t.Errorf("of another process: %q", got)
	}
	close(answer)
	b.End(job)
}

// TestAttemptsAreBounded: the remembered attempts never exceed their bounds. Each operation keeps its last attempts,
// and ended operations are evicted before running ones.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	again := webhook.Result{Verdict: webhook.Retry, StatusCode: http.StatusServiceUnavailable}
	key := func(i int) store.Key {
		return store.Key{Namespace: "team", Name: fmt.Sprint(strings.Repeat("x", 200), i)}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := &executor.Remembered{}
		for range rapid.IntRange(1, 300).Draw(t, "events") {
			k, hook := key(rapid.IntRange(0, 5).Draw(t, "key")), fmt.Sprint("hook", rapid.IntRange(0, 20).Draw(t, "hook"))
			id := fmt.Sprint("id", rapid.IntRange(0, 1).Draw(t, "id"))
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				m.End(k)
			case 1:
				m.Note(k, id, hook, webhook.Result{Verdict: webhook.Succeeded})
			default:
				m.Note(k, id, hook, again)
			}
			if got := m.Of(k, id); len(got.Last) > executor.MaxAttempts || got.Dropped > 0 &&
				len(got.Last) < executor.MaxAttempts {
				t.Fatalf("%d are remembered, and %d are not", len(got.Last), got.Dropped)
			}
		}
		if n, counted, real := m.Held(); counted != real || m.Ended() > n {
			t.Fatalf("%d operations with %d bytes, counted as %d; %d ends", n, real, counted, m.Ended())
		}
	})
	m := &executor.Remembered{}
	many := executor.MaxAttemptBytes / 500
	for i := range many {
		for range 2 * executor.MaxAttempts {
			m.Note(key(i), "id", "hook", again)
		}
	}
	n, counted, real := m.Held()
	if counted != real || counted > executor.MaxAttemptBytes || n < 1000 || n >= many {
		t.Errorf("%d operations take %d bytes, counted as %d", n, real, counted)
	}
	if got := m.Of(key(0), "id"); len(got.Last) == 0 || got.Dropped == 0 || !got.Full {
		t.Errorf("the first one has %d, dropped %d, full %t", len(got.Last), got.Dropped, got.Full)
	}
	last := key(many)
	if m.Note(last, "id", "hook", again); len(m.Of(last, "id").Last) != 0 {
		t.Error("there was room")
	}
	m.End(key(0))
	m.End(key(1))
	if m.Note(last, "id", "hook", again); len(m.Of(last, "id").Last) != 1 || len(m.Of(key(0), "id").Last) != 0 {
		t.Error("ended operations are not evicted")
	}
}

// TestAttemptsOfCanceledCalls: the result of a canceled call that arrives after the end keeps nothing in memory.
// Successive operations of a resource share one place.
func TestAttemptsOfCanceledCalls(t *testing.T) {
	t.Parallel()
	again := webhook.Result{Verdict: webhook.Retry, StatusCode: http.StatusServiceUnavailable}
	m, key := &executor.Remembered{}, store.Key{Namespace: "team", Name: "app"}
	for i := range 100 {
		id := fmt.Sprint("id", i)
		m.Note(key, id, "hook", again)
		m.End(key)
		m.Note(key, id, "hook", webhook.Result{Verdict: webhook.Canceled})
		if got := m.Of(key, id); len(got.Last) != 1 || m.Ended() != 1 {
			t.Fatalf("%d are remembered of %s, and %d ends", len(got.Last), id, m.Ended())
		}
	}
	for i := range executor.MaxAttemptBytes / 100 {
		other := store.Key{Namespace: "team", Name: fmt.Sprint(i)}
		m.Note(other, "id", "hook", again)
		m.End(other)
		m.Note(other, "id", "hook", webhook.Result{Verdict: webhook.Canceled})
	}
	last := store.Key{Namespace: "team", Name: "last"}
	m.Note(last, "id", "hook", again)
	if got := m.Of(last, "id"); len(got.Last) != 1 || got.Full {
		t.Errorf("a new operation is not remembered: %+v", got)
	}
}

// TestFirstTryCostsNothing: an operation that ends with its first try allocates nothing for remembered attempts.
func TestFirstTryCostsNothing(t *testing.T) {
	if n := executor.FirstTryAllocs(); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
