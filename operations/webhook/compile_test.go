package webhook_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		change func(*webhook.Definition)
		want   string // prefix of the error
	}{
		{
			"URL syntax", func(d *webhook.Definition) { d.Request.URL = "https://x/{{.a" },
			"spec.request.url: cannot parse template: ",
		},
		{"URL missing", func(d *webhook.Definition) { d.Request.URL = "" }, "spec.request.url: cannot use URL"},
		{
			"URL relative", func(d *webhook.Definition) { d.Request.URL = "/x" },
			"spec.request.url: cannot use URL: its scheme is neither",
		},
		{
			"URL with password", func(d *webhook.Definition) { d.Request.URL = "https://a:b@x/" },
			"spec.request.url: cannot use URL: it contains a user name",
		},
		{
			"URL with dots", func(d *webhook.Definition) { d.Request.URL = "https://x/a/%2e%2e/b" },
			"spec.request.url: cannot use URL: its path has a segment of dots",
		},
		{
			"unknown function", func(d *webhook.Definition) { d.Request.Body = ptr(`{{env "HOME"}}`) },
			"spec.request.body: cannot parse template: ",
		},
		{
			"html", func(d *webhook.Definition) { d.Request.Body = ptr(`{{.Resource | html}}`) },
			`spec.request.body: cannot parse template: function "html" is not available`,
		},
		{"call, hidden in parentheses", func(d *webhook.Definition) {
			d.Request.Body = ptr(`{{if (call .Resource).x}}{{end}}`)
		}, `spec.request.body: cannot parse template: function "call" is not available`},
		{
			"an internal function", func(d *webhook.Definition) { d.Request.Body = ptr(`{{fairlead_leave}}`) },
			"spec.request.body: cannot parse template: ",
		},
		{
			"a long template", func(d *webhook.Definition) { d.Request.Body = ptr(strings.Repeat("x", 300<<10)) },
			"spec.request.body: cannot parse template: longer than",
		},
		{
			"method", func(d *webhook.Definition) { d.Request.Method = "CONNECT" },
			`spec.request.method: cannot use method "CONNECT"`,
		},
		{
			"header name", func(d *webhook.Definition) { d.Request.Headers = map[string]string{"a b": "x"} },
			"spec.request.headers[a b]: cannot be sent",
		},
		{
			"Host", func(d *webhook.Definition) { d.Request.Headers = map[string]string{"hOST": "x"} },
			"spec.request.headers[hOST]: cannot be set",
		},
		{
			"framing", func(d *webhook.Definition) { d.Request.Headers = map[string]string{"Transfer-Encoding": "x"} },
			"spec.request.headers[Transfer-Encoding]: cannot be set",
		},
		{
			"proxies", func(d *webhook.Definition) { d.Request.Headers = map[string]string{"Proxy-Authorization": "x"} },
			"spec.request.headers[Proxy-Authorization]: cannot be set",
		},
		{
			"a line break", func(d *webhook.Definition) { d.Request.Headers = map[string]string{"X": "a\r\nHost: evil"} },
			"spec.request.headers[X]: cannot be sent",
		},
		{
			"the same header twice", func(d *webhook.Definition) { d.Request.Headers = map[string]string{"X": "a", "x": "b"} },
			"spec.request.headers[x]: cannot be set twice",
		},
		{
			"CEL syntax", func(d *webhook.Definition) { d.Response.Success = "response." },
			"spec.response.success: cannot compile expression: ",
		},
		{
			"CEL unknown field", func(d *webhook.Definition) { d.Response.Retry = "response.stauts == 1" },
			"spec.response.retry: cannot compile expression: ",
		},
		{
			"CEL unknown variable", func(d *webhook.Definition) { d.Response.Gone = "env.HOME == ''" },
			"spec.response.gone: cannot compile expression: ",
		},
		{
			"CEL not bool", func(d *webhook.Definition) { d.Poll.Succeeded = "response.status" },
			"spec.poll.succeeded: cannot compile expression: it yields int, not bool",
		},
		{
			"CEL not string", func(d *webhook.Definition) { d.Poll.Error = "1 + 1" },
			"spec.poll.error: cannot compile expression: it yields int, not string",
		},
		{
			"CEL location", func(d *webhook.Definition) { d.Response.Location = "!" },
			"spec.response.location: cannot compile expression: ",
		},
		{
			"CEL poll.failed", func(d *webhook.Definition) { d.Poll.Failed = "(" },
			"spec.poll.failed: cannot compile expression: ",
		},
		{
			"CEL response.error", func(d *webhook.Definition) { d.Response.Error = "true" },
			"spec.response.error: cannot compile expression: it yields bool",
		},
		{"mode", func(d *webhook.Definition) { d.Mode = "Never" }, `spec.mode: cannot be "Never"`},
		{"duration", func(d *webhook.Definition) { d.RequestTimeout = -1 }, "spec.requestTimeout: cannot be -1ns"},
		{"interval", func(d *webhook.Definition) { d.Poll.Interval = -time.Second }, "spec.poll.interval: cannot be -1s"},
		{"attempts", func(d *webhook.Definition) { d.Retry.MaxAttempts = -1 }, "spec.retry.maxAttempts: cannot be -1"},
		{"rate", func(d *webhook.Definition) { d.RatePerSecond = math.NaN() }, "spec.ratePerSecond: cannot be NaN"},
		{
			"correlation header", func(d *webhook.Definition) { d.CorrelationHeader = "Host" },
			`spec.correlationHeader: cannot be "Host"`,
		},
		{"no auth", func(d *webhook.Definition) { d.Auth = &webhook.Auth{} }, "spec.auth: cannot be used: exactly one of"},
		{
			"two kinds of auth", func(d *webhook.Definition) { d.Auth = &webhook.Auth{Basic: "a", Bearer: "b"} },
			"spec.auth: cannot be used: exactly one of",
		},
		{"token URL", func(d *webhook.Definition) {
			d.Auth = &webhook.Auth{OAuth2: &webhook.OAuth2{Secret: "s", TokenURL: "x"}}
		}, "spec.auth.oauth2.tokenURL: cannot use URL"},
		{"audience", func(d *webhook.Definition) {
			d.Auth = &webhook.Auth{ServiceAccountToken: &webhook.ServiceAccountToken{}}
		}, "spec.auth.serviceAccountToken: "},
	} {
		d := webhook.Definition{Namespace: "ns", Name: "hook", Request: webhook.Request{URL: "https://x.example"}}
		tc.change(&d)
		w, err := webhook.Compile(d)
		var field *webhook.FieldError
		if w != nil || !errors.As(err, &field) || !errors.Is(err, webhook.ErrInvalid) ||
			!strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s…", tc.reason, err, tc.want)
		}
	}
}

func TestCompileNamesEveryField(t *testing.T) {
	t.Parallel()
	_, err := webhook.Compile(webhook.Definition{
		Request: webhook.Request{URL: "{{", Body: ptr("{{")}, Response: webhook.Response{Success: "("}, Mode: "x",
	})
	for _, field := range []string{"spec.mode", "spec.request.url", "spec.request.body", "spec.response.success"} {
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	w, err := webhook.Compile(webhook.Definition{Request: webhook.Request{
		URL:     "https://x.example",
		Headers: map[string]string{"Idempotency-Key": "mine", "X-Other": "y"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := webhook.Definition{
		Mode: webhook.Sync, RequestTimeout: 30 * time.Second, CorrelationHeader: "X-Correlation-ID", Timeout: 2 * time.Hour,
		Request: webhook.Request{
			Method: "POST", URL: "https://x.example",
			Headers: map[string]string{"Idempotency-Key": "mine", "X-Other": "y"},
		},
		Poll:    webhook.Poll{Interval: 10 * time.Second},
		Retry:   webhook.RetryPolicy{MaxAttempts: 10, InitialInterval: time.Second, MaxInterval: 5 * time.Minute},
		Breaker: webhook.Breaker{Failures: 5, OpenFor: 30 * time.Second},
	}
	if diff := cmp.Diff(want, w.Definition()); diff != "" {
		t.Error(diff)
	}
	if got := w.Warnings(); len(got) != 1 || !strings.Contains(got[0], "Idempotency-Key") {
		t.Errorf("warnings: %q", got)
	}
}

// TestHostFromData: a webhook with credentials does not compile if data can change the host of its URL.
func TestHostFromData(t *testing.T) {
	t.Parallel()
	for url, named := range map[string]bool{
		"https://x.example/{{.TenantID}}": true, "https://x.example": true, "https://x.example?{{.TenantID}}": true,
		"https://{{.TenantID}}.example/": false, "{{.Resource}}": false, "https://x.example{{.TenantID}}": false,
		"https://x.example:{{.TenantID}}/": false, "{{if true}}https://x.example/{{end}}": false,
	} {
		d := webhook.Definition{Request: webhook.Request{URL: "\n" + url + "\n"}}
		if _, err := webhook.Compile(d); err != nil {
			t.Errorf("%s, without credentials: %v", url, err)
		}
		d.Auth = &webhook.Auth{Bearer: "b"}
		_, err := webhook.Compile(d)
		var field *webhook.FieldError
		if named != (err == nil) || err != nil && (!errors.As(err, &field) || field.Field != "spec.request.url") {
			t.Errorf("%s, with credentials: %v", url, err)
		}
	}
}
