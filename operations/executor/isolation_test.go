package executor_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestParallelIsIndependent repeats one call while another call of the same operation hangs.
func TestParallelIsIndependent(t *testing.T) {
	b := setup(t)
	hang, thrice := make(chan struct{}), make(chan string, 1)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch {
		case path == "/slow":
			operationbed.Pause(r, hang)
		case n < 4:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			thrice <- path
		}
	}
	b.Webhook("slow", nil)
	b.Webhook("flaky", nil)
	b.Start(nil)
	op := b.Schedule(operations.Request{Webhooks: []string{"slow", "flaky"}, Execution: operations.Parallel})
	b.Received(thrice)
	close(hang)
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}

func TestHungTenantDelaysNoOther(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/hang" {
			<-r.Context().Done()
		}
	}
	b.Webhook("hang", nil)
	b.Webhook("quick", nil)
	b.Start(func(o *executor.Options) { o.MaxCalls = 4 })
	for i := range 10 {
		b.Schedule(operations.Request{
			Webhooks: []string{"hang"}, TenantID: "flood",
			Resource: operations.Resource{Type: "app", ID: fmt.Sprint(i)},
		})
	}
	for i := range 3 {
		op := b.Schedule(operations.Request{
			Webhooks: []string{"quick"}, TenantID: "other",
			Resource: operations.Resource{Type: "app", ID: fmt.Sprint("q", i)},
		})
		if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
			t.Errorf("outcome %+v", v)
		}
	}
}

// TestHostileReceivers answers as receivers do that waste time or memory, or send nonsense.
func TestHostileReceivers(t *testing.T) {
	tests := map[string]struct {
		reason string
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
	}{
		"Hang": {
			"A try ends with its timeout.", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			v1alpha1.ReasonRetriesExhausted,
		},
		"Reset": {"A reset is not an answer.", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}, v1alpha1.ReasonRetriesExhausted},
		"Redirect": {"Redirects are not followed.", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		}, v1alpha1.ReasonWebhookFailed},
		"Garbage": {"Garbage is not an answer.", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("\x00\x01garbage\r\n\r\n"))
				_ = conn.Close()
			}
		}, v1alpha1.ReasonRetriesExhausted},
		"Huge": {
			"Of 50 MB only the start is read, and little of it is kept.",
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				chunk := []byte(strings.Repeat("x", 1<<20))
				for range 50 {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			}, v1alpha1.ReasonWebhookFailed,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) { tc.answer(w, r) }
			b.Webhook("hostile", func(s *v1alpha1.WebhookSpec) {
				if name == "Hang" { // other receivers answer, even if the machine is slow
					s.RequestTimeout = metav1.Duration{Duration: 300 * time.Millisecond}
				}
				s.Retry.MaxAttempts = 2
				s.Response.Error = "string(response.body)"
			})
			b.Start(nil)
			op := b.End(b.Schedule(operations.Request{Webhooks: []string{"hostile"}}))
			if got := b.Reason(op); got != tc.want {
				t.Errorf("%s reason %s, want %s", tc.reason, got, tc.want)
			}
			if raw, _ := json.Marshal(op.Status); len(raw) > 8<<10 {
				t.Errorf("status of %d bytes", len(raw))
			}
		})
	}
}

// TestSlotsAreGivenBack withdraws calls while they wait for their turn.
func TestSlotsAreGivenBack(t *testing.T) {
	tests := map[string]struct {
		reason  string
		request operations.Request
		missing string // is deleted while one call is under way and the other one waits
		want    map[string]int
	}{
		"Decided": {
			reason:  "The calls after the decision need the slot for which the other webhook waited.",
			request: operations.Request{Webhooks: []string{"bad", "other"}, Execution: operations.Parallel, Notify: "tell"},
			want:    map[string]int{"bad": 1, "tell.notify": 1},
		},
		"Missing": {
			reason:  "So does the next operation while that webhook does not exist.",
			request: operations.Request{Webhooks: []string{"good", "other"}, Execution: operations.Parallel}, missing: "other",
			want: map[string]int{"good": 1, "other": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			asked, answer := make(chan string, 1), make(chan struct{})
			b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
				switch path {
				case "/bad":
					asked <- path
					operationbed.Pause(r, answer)
					w.WriteHeader(http.StatusBadRequest)
				case "/good":
					asked <- path
					operationbed.Pause(r, answer)
				}
			}
			for _, id := range []string{"good", "bad", "other", "tell", "next"} {
				b.Webhook(id, nil)
			}
			b.Start(func(o *executor.Options) { o.MaxCalls = 1 })
			for _, id := range tc.request.Webhooks { // the first one to be compiled gets the only slot
				b.Eventually("compiled: "+id, func() bool { return b.Hook(id).Status.ObservedGeneration > 0 })
			}
			op := b.Schedule(tc.request)
			b.Received(asked)
			if tc.missing != "" {
				b.DeleteWebhook(tc.missing)
				b.says("waiting for webhook " + tc.missing + ", which does not exist in namespace " + b.Namespace)
			}
			close(answer)
			next := b.Schedule(operations.Request{Webhooks: []string{"next"}, Resource: app("next")})
			if v := operations.ViewOf(b.End(next)); v.Status != operations.Succeeded {
				t.Errorf("%s The next one: %+v", tc.reason, v)
			}
			if tc.missing != "" {
				b.Webhook(tc.missing, nil)
			}
			b.End(op)
			if diff := cmp.Diff(tc.want, b.Receiver.Counts(op.EffectiveID())); diff != "" {
				t.Errorf("%s Calls, -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
