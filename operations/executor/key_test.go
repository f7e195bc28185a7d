package executor_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// keysIn collects the idempotency keys of all requests, in the order of their first requests.
func keysIn(b *bench, answer func(http.ResponseWriter, *http.Request, string, int)) (sent func() []string) {
	seen := make(chan string, 64)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		seen <- r.Header.Get("Idempotency-Key")
		answer(w, r, path, n)
	}
	return func() (all []string) {
		for {
			select {
			case key := <-seen:
				all = append(all, key)
			default:
				return all
			}
		}
	}
}

// TestKeysOfNamespaces runs operations of the same id in two namespaces, with Webhooks of the same names. No receiver
// mistakes the calls of one for those of the other.
func TestKeysOfNamespaces(t *testing.T) {
	first := setup(t)
	second := setupOn(t, first.Config, "other")
	request := operations.Request{
		ID: "same", Webhooks: []string{"good", "bad"}, Compensate: []string{"undo"},
		Notify: "tell",
	}
	for _, b := range []*bench{first, second} {
		sent := keysIn(b, func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
			if path == "/bad" {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		for _, name := range []string{"good", "bad", "undo", "tell"} {
			b.Webhook(name, nil)
		}
		b.Start(nil)
		op := b.End(b.Schedule(request))
		want := []string{".same.good", ".same.bad", ".same.undo.compensate", ".same.tell.notify"}
		for i := range want {
			want[i] = b.Namespace + want[i]
		}
		if diff := cmp.Diff(want, sent()); diff != "" {
			t.Errorf("sent, -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(want, operationbed.KeysOf(op)); diff != "" {
			t.Errorf("recorded, -want +got:\n%s", diff)
		}
	}
}

// TestDroppedKeys drops or changes a recorded key while its call is under way. The next try has the same key, and a
// dropped key is recorded again.
func TestDroppedKeys(t *testing.T) {
	for name, key := range map[string]string{"Dropped": "", "Forged": "another.one.work"} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			asked, answer := make(chan string, 4), make(chan struct{}, 1)
			sent := keysIn(b, func(w http.ResponseWriter, r *http.Request, _ string, n int) {
				if n == 1 {
					asked <- ""
					<-answer
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			b.Webhook("work", nil)
			stop := b.Start(nil)
			b.Schedule(operations.Request{ID: "one", Webhooks: []string{"work"}})
			b.Received(asked)
			b.changeStatus(func(op *v1alpha1.Operation) { op.Status.Webhooks[0].IdempotencyKey = key })
			answer <- struct{}{}
			stop() // the next executor has no key in memory
			b.Start(nil)
			op := b.End(b.Get())
			want := b.Namespace + ".one.work"
			got := sent()
			if len(got) < 2 {
				t.Errorf("it was called %d times", len(got))
			}
			for _, sent := range got {
				if sent != want {
					t.Errorf("sent was %s, not %s", sent, want)
				}
			}
			if diff := cmp.Diff([]string{want}, operationbed.KeysOf(op)); diff != "" && key == "" {
				t.Errorf("recorded, -want +got:\n%s", diff)
			}
		})
	}
}

// TestTokensStayValid: this version reads a token of an older version.
func TestTokensStayValid(t *testing.T) {
	t.Parallel()
	const old = "eyJuIjoic2hvcCIsIm8iOiJhcHAtYTEiLCJpIjoib25lIiwidyI6IndvcmsiLCJwIjoibm90aWZ5In0."
	cb := executor.NewCallbacks("http://fairlead.example", []byte("0123456789abcdef0123456789abcdef"))
	want := executor.Callback{Namespace: "shop", Name: "app-a1", OperationID: "one", WebhookID: "work", Purpose: "notify"}
	made := cb.Token(want)
	if !strings.HasPrefix(made, old) {
		t.Errorf("the payload has changed: %s", made)
	}
	const signature = "u7g93F4xYOZF3vEjTrepxaqdBE8ydAWbaZOnR83XxS4"
	if got, err := cb.Parse(old + signature); err != nil || got != want {
		t.Errorf("%+v (%v)", got, err)
	}
}
