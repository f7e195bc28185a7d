package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

func TestJudgePoll(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		poll    webhook.Poll
		status  int
		after   string
		kind    string
		body    string
		verdict webhook.Verdict
		message string
	}{
		{reason: "succeeded", status: 200, body: `{"status":"SUCCEEDED"}`, verdict: webhook.Succeeded},
		{reason: "in any case", status: 200, body: `{"status":"Success"}`, verdict: webhook.Succeeded},
		{reason: "done", status: 200, body: `{"status":"done"}`, verdict: webhook.Succeeded},
		{
			reason: "failed", status: 200, body: `{"status":"failed","error":"disk full"}`, verdict: webhook.Failed,
			message: "answered 200: disk full",
		},
		{
			reason: "error", status: 200, body: `{"status":"ERROR"}`, verdict: webhook.Failed,
			message: `answered 200: status "ERROR"`,
		},
		{
			reason: "an unknown status keeps polling and is shown", status: 200, body: `{"status":"QUEUED"}`,
			verdict: webhook.Pending, message: `in progress: status "QUEUED"`,
		},
		{
			reason: "a status that is not text", status: 200, body: `{"status":{"code":1}}`, verdict: webhook.Pending,
			message: `in progress: status {"code":1}`,
		},
		{
			reason: "no status", status: 200, kind: "application/json", body: `{"id":1}`, verdict: webhook.Pending,
			message: `neither poll.succeeded nor poll.failed holds: answered 200 (application/json): {"id":1}`,
		},
		{
			reason: "HTML, as of a login page", status: 200, kind: "text/html", body: "<html>\n<b>Sign in</b>",
			verdict: webhook.Pending,
			message: "neither poll.succeeded nor poll.failed holds: answered 200 (text/html): <html> <b>Sign in</b>",
		},
		{
			reason: "HTML for which own rules were not written", status: 200, kind: "text/html", body: "<html>",
			verdict: webhook.Pending,
			poll:    webhook.Poll{Succeeded: "response.status == 201"},
			message: "neither poll.succeeded nor poll.failed holds: answered 200 (text/html): <html>",
		},
		{
			reason: "only the first characters", status: 200, kind: "text/plain", body: strings.Repeat("x", 999),
			verdict: webhook.Pending,
			message: "neither poll.succeeded nor poll.failed holds: answered 200 (text/plain): " + strings.Repeat("x", 200),
		},
		{
			reason: "a body for which own rules were written", status: 200, kind: "text/plain", body: "running",
			poll: webhook.Poll{Succeeded: `response.body == "done"`}, verdict: webhook.Pending, message: "in progress",
		},
		{
			reason: "a bare 200", status: 200, verdict: webhook.Pending,
			message: "neither poll.succeeded nor poll.failed holds: answered 200 without a body",
		},
		{reason: "a bare 202", status: 202, verdict: webhook.Pending, message: "in progress: answered 202"},
		{
			reason: "an error with a status", status: 404, body: `{"status":404,"title":"no such job"}`,
			verdict: webhook.Pending,
			message: "answered 404: no such job",
		},
		{
			reason: "5xx, with any body", status: 503, body: `{"status":"FAILED"}`, verdict: webhook.Pending,
			message: `answered 503: status "FAILED"`,
		},
		{reason: "404", status: 404, verdict: webhook.Pending, message: "answered 404"},
		{reason: "429 with Retry-After", status: 429, after: "3", verdict: webhook.Pending, message: "answered 429"},
		{
			reason: "429, with any body", status: 429, body: `{"status":"error","message":"slow down"}`,
			verdict: webhook.Pending, message: "answered 429: slow down",
		},
		{
			reason: "408 under own rules", status: 408, body: `{"state":"failed"}`,
			poll: webhook.Poll{Failed: `response.body.state == "failed"`}, verdict: webhook.Pending, message: "answered 408",
		},
		{
			reason: "own rules", status: 200, body: `{"done":true}`, poll: webhook.Poll{Succeeded: "response.body.done"},
			verdict: webhook.Succeeded,
		},
		{
			reason: "a rule that finds nothing keeps polling", status: 200, body: `{"name":"x"}`,
			poll:    webhook.Poll{Succeeded: "response.body.done"},
			verdict: webhook.Pending,
			message: "spec.poll.succeeded: cannot evaluate expression on this answer: no such key: done",
		},
		{
			reason: "5xx under own rules", status: 500, body: `{"state":"failed"}`,
			poll:    webhook.Poll{Failed: `response.body.state == "failed"`},
			verdict: webhook.Pending, message: "answered 500",
		},
		{
			reason: "success with an error text is a failure", status: 200, body: `{"status":"DONE","error":"half of it"}`,
			poll: webhook.Poll{Error: "response.body.error"}, verdict: webhook.Failed, message: "half of it",
		},
		{
			reason: "failed with an error text", status: 200, body: `{"status":"FAILED","why":"disk full"}`,
			poll: webhook.Poll{Error: "response.body.why"}, verdict: webhook.Failed, message: "disk full",
		},
		{
			reason: "a failed rule on 4xx", status: 410, poll: webhook.Poll{Failed: "response.status == 410"},
			verdict: webhook.Failed, message: "answered 410",
		},
		{
			reason: "both at once are not a success", status: 200, poll: webhook.Poll{Succeeded: "true", Failed: "true"},
			verdict: webhook.Failed, message: "answered 200",
		},
		{
			reason: "a redirect can be the end", status: 303, poll: webhook.Poll{Succeeded: "response.status == 303"},
			verdict: webhook.Succeeded,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.ContentLength > 0 || r.Header.Get("Content-Type") != "" {
					t.Errorf("a poll is a GET without body, not %s %v", r.Method, r.Header)
				}
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				if tc.kind != "" {
					w.Header().Set("Content-Type", tc.kind)
				} else {
					w.Header()["Content-Type"] = nil
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})
			hook := compile(t, webhook.Definition{Mode: webhook.Async, Poll: tc.poll, Request: webhook.Request{URL: server.URL}})
			res := permit(t, newClient(t, webhook.Options{}), hook).Poll(t.Context(), aCall(), server.URL+"/jobs/1")
			if res.Verdict != tc.verdict || res.Message != strings.TrimSpace(tc.message) || res.StatusCode != tc.status {
				t.Errorf("got %v %d %q", res.Verdict, res.StatusCode, res.Message)
			}
			want := 10 * time.Second
			if tc.after != "" {
				want = 3 * time.Second
			}
			if got := hook.NextPoll(res); got != want {
				t.Errorf("NextPoll = %v, want %v", got, want)
			}
		})
	}
}

func TestInvalidPollURL(t *testing.T) {
	t.Parallel()
	hook := compile(t, webhook.Definition{Mode: webhook.Async, Request: webhook.Request{URL: "http://127.0.0.1:1"}})
	client := newClient(t, webhook.Options{})
	for _, bad := range []string{
		"", "/relative", "ftp://x/", "http://user:pw@x/", "http://x/a b", "http:///x",
		strings.Repeat("x", 9000),
	} {
		if res := permit(t, client, hook).Poll(t.Context(), aCall(), bad); res.Verdict != webhook.Invalid {
			t.Errorf("%q: %+v", bad, res)
		}
	}
	if res := permit(t, client, hook).Poll(t.Context(), aCall(),
		"http://127.0.0.1:1/nobody"); res.Verdict != webhook.Pending {
		t.Errorf("no server: %+v", res)
	}
	if res := permit(t, client, hook).Poll(t.Context(), aCall(),
		"http://169.254.169.254/latest"); res.Verdict != webhook.Refused {
		t.Errorf("metadata: %+v", res)
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	hook := compile(t, webhook.Definition{
		Request: webhook.Request{URL: "https://x.example"},
		Retry:   webhook.RetryPolicy{MaxAttempts: 4, InitialInterval: time.Second, MaxInterval: 3 * time.Second},
	})
	most := func() float64 { return 1 }
	for tries, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second} {
		if got, ok := hook.NextTry(tries, webhook.Result{RetryAfter: -1}, most); !ok || got != want {
			t.Errorf("after %d tries: %v, %v; want %v", tries, got, ok, want)
		}
	}
	if _, ok := hook.NextTry(4, webhook.Result{RetryAfter: 0}, most); ok {
		t.Error("a fifth try, want at most four")
	}
	if got, _ := hook.NextTry(1, webhook.Result{RetryAfter: time.Hour}, most); got != time.Hour {
		t.Errorf("Retry-After does not win: %v", got)
	}
	if got, _ := hook.NextTry(1, webhook.Result{RetryAfter: 0}, most); got <= 0 {
		t.Errorf("Retry-After: 0 makes a busy loop: %v", got)
	}
	if got := hook.NextPoll(webhook.Result{RetryAfter: 0}); got != time.Second {
		t.Errorf("Retry-After: 0 makes a busy poll: %v", got)
	}
}
