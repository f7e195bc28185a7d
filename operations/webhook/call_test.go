package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

func TestJudgeCall(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		def      webhook.Definition
		status   int
		header   map[string]string
		body     string
		want     webhook.Result
		location string // after the server's URL
	}{
		{reason: "2xx is success", status: 200, body: `{"x":1}`, want: webhook.Result{Verdict: webhook.Succeeded}},
		{reason: "204 too", status: 204, want: webhook.Result{Verdict: webhook.Succeeded}},
		{
			reason: "404 is gone and, unless it is a Delete, a failure", status: 404, body: `{"error":"unknown"}`,
			want: webhook.Result{Verdict: webhook.Failed, Gone: true, Message: "answered 404: unknown"},
		},
		{reason: "410 is gone", status: 410, want: webhook.Result{
			Verdict: webhook.Failed, Gone: true, Message: "answered 410",
		}},
		{
			reason: "400 is final", status: 400, body: "nope",
			want: webhook.Result{Verdict: webhook.Failed, Message: "answered 400: nope"},
		},
		{
			reason: "a redirect is not followed", status: 307, header: map[string]string{"Location": "http://127.0.0.1:1/"},
			want: webhook.Result{Verdict: webhook.Failed, Message: "answered 307"},
		},
		{reason: "503 is tried again", status: 503, want: webhook.Result{Verdict: webhook.Retry, Message: "answered 503"}},
		{
			reason: "429 is retried after its Retry-After", status: 429, header: map[string]string{"Retry-After": "7"},
			want: webhook.Result{Verdict: webhook.Retry, Message: "answered 429", RetryAfter: 7e9},
		},
		{reason: "408 is tried again", status: 408, want: webhook.Result{Verdict: webhook.Retry, Message: "answered 408"}},
		{reason: "425 is tried again", status: 425, want: webhook.Result{Verdict: webhook.Retry, Message: "answered 425"}},
		{
			reason: "success with an error text is a failure", status: 200, body: `{"error":"boom"}`,
			def:  webhook.Definition{Response: webhook.Response{Error: "response.body.error"}},
			want: webhook.Result{Verdict: webhook.Failed, Message: "boom"},
		},
		{
			reason: "an empty error text is none", status: 200, body: `{"error":""}`,
			def:  webhook.Definition{Response: webhook.Response{Error: "response.body.error"}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "a null error is none", status: 200, body: `{"error":null}`,
			def:  webhook.Definition{Response: webhook.Response{Error: "response.body.error"}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "a missing error is none", status: 200, body: `{}`,
			def:  webhook.Definition{Response: webhook.Response{Error: "response.body.error"}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "no body has no error", status: 204,
			def:  webhook.Definition{Response: webhook.Response{Error: "response.body.error"}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "an object is an error text", status: 200, body: `{"error":{"code":7}}`,
			def:  webhook.Definition{Response: webhook.Response{Error: "response.body.error"}},
			want: webhook.Result{Verdict: webhook.Failed, Message: `{"code":7}`},
		},
		{
			reason: "success by body", status: 200, body: `{"ok":false}`,
			def:  webhook.Definition{Response: webhook.Response{Success: "response.status == 200 && response.body.ok"}},
			want: webhook.Result{Verdict: webhook.Failed, Message: "answered 200"},
		},
		{
			reason: "success by header", status: 302, header: map[string]string{"X-Done": "yes"},
			def:  webhook.Definition{Response: webhook.Response{Success: `response.headers["x-done"] == "yes"`}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "a rule that does not fit the answer fails the call", status: 200, body: `[1]`,
			def: webhook.Definition{Response: webhook.Response{Success: "response.body.ok"}},
			want: webhook.Result{
				Verdict: webhook.Failed,
				Message: "spec.response.success: cannot evaluate expression on this answer: unsupported index type 'string' in " +
					"list",
			},
		},
		{
			reason: "integers of the body are integers", status: 200, body: `{"n":41}`,
			def:  webhook.Definition{Response: webhook.Response{Success: "response.body.n + 1 == 42 && response.body.n < 41.5"}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "a custom retry rule takes precedence over success", status: 200, body: `{"busy":true}`,
			def:  webhook.Definition{Response: webhook.Response{Retry: "has(response.body.busy) && response.body.busy"}},
			want: webhook.Result{Verdict: webhook.Retry, Message: "answered 200"},
		},
		{
			reason: "the default retry rule does not", status: 503,
			def:  webhook.Definition{Response: webhook.Response{Success: "response.status == 503"}},
			want: webhook.Result{Verdict: webhook.Succeeded},
		},
		{
			reason: "deleted by rule", status: 200, body: `{"state":"absent"}`,
			def:  webhook.Definition{Response: webhook.Response{Gone: `response.body.state == "absent"`}},
			want: webhook.Result{Verdict: webhook.Succeeded, Gone: true},
		},
		{
			reason: "async needs a location", status: 202, def: webhook.Definition{Mode: webhook.Async},
			want: webhook.Result{Verdict: webhook.Failed, Message: "answered 202 without a URL to poll"},
		},
		{
			reason: "async, relative location", status: 202, def: webhook.Definition{Mode: webhook.Async},
			header: map[string]string{"Location": "../jobs/7?x=1#frag"}, location: "/jobs/7?x=1",
			want: webhook.Result{Verdict: webhook.Accepted},
		},
		{
			reason: "async, location by rule", status: 202, body: `{"job":"7"}`, location: "/jobs/7",
			def:  webhook.Definition{Mode: webhook.Async, Response: webhook.Response{Location: `"/jobs/" + response.body.job`}},
			want: webhook.Result{Verdict: webhook.Accepted},
		},
		{
			reason: "async, an invalid location", status: 202, header: map[string]string{"Location": "file:///etc/passwd"},
			def: webhook.Definition{Mode: webhook.Async},
			want: webhook.Result{
				Verdict: webhook.Failed,
				Message: "cannot poll: cannot use URL: its scheme is neither http nor https",
			},
		},
		{
			reason: "callback", status: 202, def: webhook.Definition{Mode: webhook.AsyncCallback},
			want: webhook.Result{Verdict: webhook.Accepted},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				for name, value := range tc.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})
			tc.def.Request.URL = server.URL + "/api/call"
			client, hook := newClient(t, webhook.Options{}), compile(t, tc.def)
			got := permit(t, client, hook).Call(t.Context(), aCall())
			tc.want.StatusCode = tc.status
			if tc.want.RetryAfter == 0 {
				tc.want.RetryAfter = -1
			}
			if tc.location != "" {
				tc.want.Location = server.URL + tc.location
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(webhook.Result{}, "Duration", "Err")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTemplatesOfRequest(t *testing.T) {
	t.Parallel()
	var got string
	server := newServer(t, func(_ http.ResponseWriter, r *http.Request) {
		var b strings.Builder
		r.Write(&b)
		got = b.String()
	})
	hook := compile(t, webhook.Definition{Request: webhook.Request{
		Method: "{{if eq .Operation.operationType \"Delete\"}}delete{{else}}post{{end}}",
		URL:    server.URL + "/apps/{{.Resource.name}}?t={{.TenantID}}&q={{urlquery .Resource.name}}",
		Headers: map[string]string{
			"X-Tenant": "{{.TenantID}}", "Webhook-Id": "forged",
			"X-Request": `{{index .Headers "X-Request-Id"}}`,
		},
		Body: ptr(`{"name":"{{.Resource.name}}","tags":{{.Resource.tags}},"n":{{.Resource.count}},"all":{{json .Resource}}}`),
	}})
	res := permit(t, newClient(t, webhook.Options{}), hook).Call(t.Context(), aCall())
	if res.Verdict != webhook.Succeeded {
		t.Fatalf("%+v", res)
	}
	for _, want := range []string{
		`DELETE /apps/quote%20%22%20and%20%5C%20slash?t=tenant-1&q=quote+%22+and+%5C+slash HTTP/1.1`,
		`{"name":"quote \" and \\ slash","tags":["a","b"],"n":3,"all":{"count":3,"id":"app-1","name":"quote \" and \\ slash","none":null,"tags":["a","b"]}}`,
		"X-Tenant: tenant-1", "X-Request: r-1", "Webhook-Id: ns.op-1.cleanup\r\n", "Idempotency-Key: ns.op-1.cleanup\r\n",
		"X-Correlation-Id: corr-1", "Traceparent: 00-", "User-Agent: Fairlead", "Content-Type: application/json",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("request lacks %q:\n%s", want, got)
		}
	}
}
