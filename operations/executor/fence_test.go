package executor_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// permits is a fence that grants a number of permits, and then none until it is opened.
type permits struct {
	mu     sync.Mutex
	left   int
	closed bool
	passed int // requests with a permit
	sent   int // requests that arrived
}

func (l *permits) ask() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left < 0 {
		l.closed = true
		return errors.New("another process leads")
	}
	l.passed++
	return nil
}

func (l *permits) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.closed = 1<<30, false
}

func (l *permits) count() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
}

func (l *permits) state() (passed, sent int, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passed, l.sent, l.closed
}

// TestFenced closes the fence after each possible number of requests. No request is sent without a permit, to the API
// server or to a receiver. That holds for first, repeated, polling, compensating and notifying calls. After the fence
// opens again, everything finishes and nothing is done twice.
func TestFenced(t *testing.T) {
	const steps = 24
	for n := range steps {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := setup(t)
			l, log := &permits{left: n}, &syncBuffer{}
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
				l.count()
				answerByName(w, r, path, n)
			}
			for _, id := range []string{"flaky", "slow", "bad", "undo", "tell"} {
				b.Webhook(id, func(s *v1alpha1.WebhookSpec) {
					if s.Breaker.Failures = 1000; id == "slow" {
						polled(webhook.MinInterval)(s)
					}
				})
			}
			calls := b.Tapped(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				l.count()
				return next.RoundTrip(r)
			})
			b.Start(func(o *executor.Options) {
				o.Calls, o.Fence, o.Logger, o.Policy = calls, l.ask, log.logger(), call.Policy{Base: time.Millisecond}
			})
			op := b.Schedule(operations.Request{
				Webhooks: []string{"flaky", "slow", "bad"}, Compensate: []string{"undo"},
				Notify: "tell",
			})
			b.Eventually("fence closed", func() bool {
				_, _, closed := l.state()
				return closed && strings.Contains(log.String(), "another process leads") &&
					strings.Contains(log.String(), "operation has to wait")
			})
			if passed, sent, _ := l.state(); sent > passed || passed != n {
				t.Errorf("%d requests were sent, with a permit for %d of %d", sent, passed, n)
			}
			l.open()
			if got := b.End(op); b.Reason(got) != v1alpha1.ReasonWebhookFailed {
				t.Errorf("it became %+v", got.Status)
			}
			want := map[string]int{"flaky": 3, "slow": 4, "bad": 1, "undo.compensate": 1, "tell.notify": 2}
			if diff := cmp.Diff(want, b.Receiver.Counts(op.EffectiveID())); diff != "" {
				t.Errorf("calls, -want +got:\n%s", diff)
			}
		})
	}
}
