package webhook_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestTargets: the targets show a failing endpoint and its open breaker, and no secret from its answers.
func TestTargets(t *testing.T) {
	t.Parallel()
	const secret = "correct-horse"
	var bad atomic.Bool
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if bad.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprint(w, "no: "+r.Header.Get("Authorization")+strings.Repeat("ä", 1000))
		}
	})
	client := newClient(t, webhook.Options{Resolver: newSecrets().set("login", map[string]string{"token": secret})})
	hook := compile(t, webhook.Definition{
		Namespace: "ns", Name: "hook", Request: webhook.Request{URL: server.URL},
		Auth: &webhook.Auth{Bearer: "login"}, Response: webhook.Response{Error: "string(response.body)"},
		Breaker: webhook.Breaker{Failures: 7, OpenFor: time.Hour}, Concurrency: 2, RatePerSecond: 1000,
	})
	if s, known := client.Target("ns", "hook"); known || s.Circuit != webhook.Closed {
		t.Errorf("before it is used: %t, %+v", known, s)
	}
	call := func() {
		t.Helper()
		for {
			p, wait := client.Acquire(hook, "id", nil)
			if p != nil {
				p.Call(t.Context(), aCall())
				return
			}
			<-time.After(wait.For)
		}
	}
	call()
	s, known := client.Target("ns", "hook")
	if !known || s.SuccessRate != 1 || s.Latency <= 0 || s.Tries != 1 || s.Failures != nil || !s.Since.IsZero() ||
		s.Concurrency != 2 || s.RatePerSecond != 1000 || s.Last.IsZero() {
		t.Errorf("after a success: %+v", s)
	}
	bad.Store(true)
	began := time.Now()
	for range 7 {
		call()
	}
	s, _ = client.Target("ns", "hook")
	if s.Circuit != webhook.Open || s.InARow != 7 || s.Since.Before(began) || !s.Until.After(time.Now()) || s.Tries != 8 {
		t.Errorf("after seven failures: %+v", s)
	}
	if s.SuccessRate < 0.12 || s.SuccessRate > 0.13 {
		t.Errorf("one success of eight tries, which were a moment ago, is a rate of %v", s.SuccessRate)
	}
	if len(s.Failures) != webhook.MaxFailures || s.Failures[0].At.Before(s.Failures[4].At) {
		t.Errorf("the last failures, the newest first: %+v", s.Failures)
	}
	for _, f := range s.Failures {
		if f.Status != 500 || f.Verdict != "Retry" || f.Duration <= 0 || len(f.Message) > webhook.MaxFailureMessage ||
			!strings.Contains(f.Message, "[masked]") || !strings.HasSuffix(f.Message, "…") {
			t.Errorf("%+v", f)
		}
	}
	raw, err := json.Marshal(client.Targets(""))
	if err != nil || strings.Contains(string(raw), secret) || !strings.Contains(string(raw), `"circuit":"Open"`) {
		t.Errorf("%v: %s", err, raw)
	}
	client.Forget("ns", "hook")
	if left := client.Targets(""); len(left) != 0 {
		t.Errorf("a forgotten endpoint is listed: %+v", left)
	}
}

// TestTargetsInUse counts the calls under way and the waiting ones, by namespace and name.
func TestTargetsInUse(t *testing.T) {
	t.Parallel()
	client := newClient(t, webhook.Options{})
	hook := func(namespace, name string) *webhook.Compiled {
		return compile(t, webhook.Definition{
			Namespace: namespace, Name: name, Concurrency: 1,
			Request: webhook.Request{URL: "http://127.0.0.1:1"},
		})
	}
	for _, name := range []string{"b", "a"} {
		for id := range 3 {
			client.Acquire(hook("ns", name), fmt.Sprint(id), nil)
		}
	}
	client.Acquire(hook("ns2", "c"), "0", nil)
	want := []webhook.TargetState{
		{Namespace: "ns", Webhook: "a", Circuit: webhook.Closed, UnderWay: 1, Concurrency: 1, Waiting: 2},
		{Namespace: "ns", Webhook: "b", Circuit: webhook.Closed, UnderWay: 1, Concurrency: 1, Waiting: 2},
	}
	if diff := cmp.Diff(want, client.Targets("ns")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if all := client.Targets(""); len(all) != 3 {
		t.Errorf("of all namespaces: %+v", all)
	}
}
