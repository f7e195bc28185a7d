package webhook_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestFence: without a permit of the fence no request is sent, neither to the receiver nor for a token. The endpoint's
// breaker does not count such calls.
func TestFence(t *testing.T) {
	t.Parallel()
	var requests, leave atomic.Int32
	token := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"access_token":"t","token_type":"Bearer","expires_in":3600}`))
	})
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path == "/401" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	over := errors.New("another process leads")
	client := newClient(t, webhook.Options{
		Resolver: newSecrets().set("oauth", map[string]string{"client_id": "i", "client_secret": "a-long-secret"}),
		Fence: func(namespace string) error {
			if namespace != "ns" {
				return errors.New("called for another namespace: " + namespace)
			}
			if leave.Add(-1) < 0 {
				return over
			}
			return nil
		},
	})
	plain := compile(t, webhook.Definition{
		Namespace: "ns", Name: "plain", Request: webhook.Request{URL: server.URL}, Breaker: webhook.Breaker{Failures: 1},
	})
	withToken := compile(t, webhook.Definition{
		Namespace: "ns", Name: "token", Request: webhook.Request{URL: server.URL}, Auth: oauth(token.URL),
	})
	refusing := compile(t, webhook.Definition{
		Namespace: "ns", Name: "401", Request: webhook.Request{URL: server.URL + "/401"}, Auth: oauth(token.URL),
	})
	for _, tc := range []struct {
		reason string
		hook   *webhook.Compiled
		leave  int32
		poll   bool
		want   webhook.Verdict
	}{
		{reason: "the call is not made", hook: plain, want: webhook.Canceled},
		{reason: "nor is a poll", hook: plain, poll: true, want: webhook.Canceled},
		{reason: "nor is a token requested", hook: withToken, want: webhook.Canceled},
		{reason: "not for a poll either", hook: withToken, poll: true, want: webhook.Canceled},
		{reason: "a permit for a token is none for the call", hook: withToken, leave: 1, want: webhook.Canceled},
		{reason: "a token of the cache needs no permit", hook: withToken, leave: 1, want: webhook.Succeeded},
		{
			reason: "the first token of another endpoint, and a call that is refused", hook: refusing, leave: 2,
			want: webhook.Failed,
		},
		{reason: "a refused token is not renewed", hook: refusing, leave: 0, want: webhook.Canceled},
		{
			reason: "and the refusal of the old one is not final while no new one may be requested", hook: refusing,
			leave: 1, want: webhook.Canceled,
		},
	} {
		requests.Store(0)
		leave.Store(tc.leave)
		var res webhook.Result
		if p := permit(t, client, tc.hook); tc.poll {
			res = p.Poll(t.Context(), aCall(), server.URL)
		} else {
			res = p.Call(t.Context(), aCall())
		}
		if res.Verdict != tc.want || requests.Load() != tc.leave {
			t.Errorf("%s: %d requests, %+v", tc.reason, requests.Load(), res)
		}
		if res.Verdict == webhook.Canceled && (!errors.Is(res.Err, webhook.ErrFenced) ||
			!errors.Is(res.Err, webhook.ErrCanceled) || !errors.Is(res.Err, over)) {
			t.Errorf("%s: %v", tc.reason, res.Err)
		}
	}
	if b := client.Breaker("ns", "plain"); b.State != webhook.Closed {
		t.Errorf("the breaker is %+v", b)
	}
}
