package executor_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// odd answers as faulty receivers do.
func odd(w http.ResponseWriter, r *http.Request, path string, _ int) {
	header := w.Header()
	switch path {
	case "/past":
		header.Set("Retry-After", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/garbled":
		header.Set("Retry-After", "soon")
		w.WriteHeader(http.StatusTooManyRequests)
	case "/moved":
		header.Set("Location", "/login")
		w.WriteHeader(http.StatusFound)
	case "/cut":
		panic(http.ErrAbortHandler)
	case "/slow":
		<-r.Context().Done()
	case "/flood":
		_, _ = w.Write([]byte(`"` + strings.Repeat("x", 8<<20) + `"`))
	case "/private":
		w.WriteHeader(http.StatusUnauthorized)
	case "/broken":
		w.WriteHeader(http.StatusInternalServerError)
	case "/taken":
		header.Set("Location", "/jobs"+r.Header.Get("X-Correlation-ID"))
		w.WriteHeader(http.StatusAccepted)
	case "/far":
		header.Set("Location", "http://169.254.169.254/jobs")
		w.WriteHeader(http.StatusAccepted)
	case "/jobs/html":
		header.Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>sign in</html>"))
	case "/jobs/private":
		w.WriteHeader(http.StatusForbidden)
	case "/jobs/late":
		header.Set("Retry-After", "7200")
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/jobs/busy":
		header.Set("Retry-After", "7200")
		header.Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"RUNNING","progress":"step 3 of 9"}`))
	}
}

// TestWhyOdd creates situations with faulty receivers, credentials and requests.
func TestWhyOdd(t *testing.T) {
	b := setup(t)
	b.Receiver.Answer = odd
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	rarely := func(s *v1alpha1.WebhookSpec) { s.Retry.InitialInterval, s.Retry.MaxInterval = hours(300), hours(300) }
	to := func(path string, change ...func(*v1alpha1.WebhookSpec)) func(*v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) {
			rarely(s)
			if s.Request.URL = path; strings.HasPrefix(path, "/") {
				s.Request.URL = b.Receiver.URL + path
			}
			for _, fn := range change {
				fn(s)
			}
		}
	}
	polled := func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval.Duration = v1alpha1.ModeAsync, webhook.MinInterval
	}
	second := func(s *v1alpha1.WebhookSpec) { s.RequestTimeout.Duration = time.Second }
	auth := func(a v1alpha1.WebhookAuth) func(s *v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) { s.Auth = &a }
	}
	ref := v1alpha1.SecretReference{Name: "odd"}
	secret := v1alpha1.SecretAuth{SecretRef: ref}
	b.secret("odd", map[string]string{"tls.crt": "x", "tls.key": "y", "client_id": "a", "client_secret": "b"})
	b.label(secretsResource, "odd", "true")
	a := asking{bench: b}
	b.StartWith(nil, func(e *executor.Executor) { a.e = e })
	for name, tc := range map[string]struct {
		hook func(*v1alpha1.WebhookSpec)
		ask  operations.Request
		judge.Case
	}{
		"past": {hook: to("/past"), Case: judge.Case{
			Reason: "a date in the past is ignored", Want: why.BackOff, Evidence: []string{"status=503"},
		}},
		"garbled": {hook: to("/garbled"), Case: judge.Case{
			Reason: "an invalid Retry-After is ignored",
			Want:   why.BackOff, Evidence: []string{"status=429"},
		}},
		"moved": {hook: to("/moved"), Case: judge.Case{
			Reason: "redirects are not followed",
			Want:   why.Ended, Evidence: []string{"reason=WebhookFailed", "error=302"},
			Advice: "redirect",
		}},
		"cut": {hook: to("/cut"), Case: judge.Case{
			Reason: "a receiver that hangs up", Want: why.BackOff, Evidence: []string{"error=EOF"}, Advice: "closes",
		}},
		"slow": {hook: to("/slow", second), Case: judge.Case{
			Reason: "a receiver that takes too long", Want: why.BackOff, Advice: "requestTimeout",
		}},
		"flood": {hook: to("/flood"), Case: judge.Case{
			Reason: "an answer that is too large", Want: why.Ended, Evidence: []string{"phase="},
		}},
		"private": {hook: to("/private"), Case: judge.Case{
			Reason: "credentials lack", Want: why.Ended, Evidence: []string{"reason=WebhookFailed", "error=401"},
			Advice: "spec.auth",
		}},
		"scheme": {hook: to(strings.Replace(plain.URL, "http:", "https:", 1)), Case: judge.Case{
			Reason: "https to a port that speaks http", Want: why.BackOff, Evidence: []string{"error=tls"},
			Advice: "scheme",
		}},
		"html": {hook: to("/taken", polled), ask: operations.Request{CorrelationID: "/html"}, Case: judge.Case{
			Reason: "a poll that answers nonsense",
			Want:   why.BackOff, Evidence: []string{"waitsFor=poll", "error=text/html"}, Message: "neither poll.succeeded",
		}},
		"jobprivate": {hook: to("/taken", polled), ask: operations.Request{CorrelationID: "/private"}, Case: judge.Case{
			Reason: "a poll that is refused",
			Want:   why.BackOff, Evidence: []string{"status=403", "waitsFor=poll"}, Message: "poll",
		}},
		"joblate": {hook: to("/taken", polled), ask: operations.Request{CorrelationID: "/late"}, Case: judge.Case{
			Reason: "a poll that says when to come back", Want: why.RetryAfter, Until: 2 * time.Hour, Progress: true,
			Evidence: []string{"status=503", "waitsFor=poll"}, Message: "poll",
		}},
		"jobbusy": {hook: to("/taken", polled), ask: operations.Request{CorrelationID: "/busy"}, Case: judge.Case{
			Reason: "unfinished work that is polled in two hours", Want: why.Parked, Until: 2 * time.Hour,
			Evidence: []string{"waitsFor=poll", "status=200"}, Progress: true,
		}},
		"far": {hook: to("/far", polled), Case: judge.Case{
			Reason: "a forbidden URL to poll",
			Want:   why.Ended, Evidence: []string{"reason=TargetRefused"},
		}},
		"ftp": {hook: to("ftp://127.0.0.1/"), Case: judge.Case{
			Reason: "no http", Want: why.Ended, Evidence: []string{"reason=Invalid"},
		}},
		"body": {hook: to("/ok", func(s *v1alpha1.WebhookSpec) {
			s.Request.Body = new("{{.Operation.spec.size}}")
		}), Case: judge.Case{
			Reason: "a template with a missing field",
			Want:   why.Ended, Evidence: []string{"reason=Invalid", "error=spec"},
		}},
		"header": {hook: to("/ok", func(s *v1alpha1.WebhookSpec) {
			s.Request.Headers = map[string]string{"X-Name": "{{ printf \"a\\nb\" }}"}
		}), Case: judge.Case{
			Reason: "a header of two lines", Want: why.Ended, Evidence: []string{"reason=Invalid"},
		}},
		"basic": {hook: to("/ok", auth(v1alpha1.WebhookAuth{Basic: &secret})), Case: judge.Case{
			Reason: "a Secret with other keys",
			Want:   why.BackOff, Evidence: []string{"error=username"}, Advice: "Secret",
		}},
		"mtls": {hook: to("/ok", auth(v1alpha1.WebhookAuth{MTLS: &secret})), Case: judge.Case{
			Reason: "an invalid certificate", Want: why.BackOff, Evidence: []string{"error=mtls"}, Advice: "Secret",
		}},
		"signing": {hook: to("/ok", func(s *v1alpha1.WebhookSpec) {
			s.Signing = &v1alpha1.WebhookSigning{SecretRef: ref}
		}), Case: judge.Case{
			Reason: "a Secret without a key to sign with",
			Want:   why.BackOff, Evidence: []string{"error=spec.signing"}, Advice: "Secret",
		}},
		"oauth": {hook: to("/ok", auth(v1alpha1.WebhookAuth{OAuth2: &v1alpha1.OAuth2Auth{
			TokenURL: b.Receiver.URL + "/private", SecretRef: ref,
		}})), Case: judge.Case{
			Reason: "the token endpoint refuses", Want: why.Ended, Evidence: []string{"error=401"}, Advice: "token",
		}},
		"oauthdown": {hook: to("/ok", auth(v1alpha1.WebhookAuth{OAuth2: &v1alpha1.OAuth2Auth{
			TokenURL: "http://127.0.0.1:1/", SecretRef: ref,
		}})), Case: judge.Case{
			Reason: "the token endpoint is unreachable", Want: why.BackOff, Evidence: []string{"error=refused"}, Advice: "token",
		}},
		"unsigned": {hook: to("/ok", func(s *v1alpha1.WebhookSpec) {
			s.Signing = &v1alpha1.WebhookSigning{SecretRef: v1alpha1.SecretReference{Name: "nowhere"}}
		}), Case: judge.Case{
			Reason: "a missing Secret for signatures", Want: why.NotReleased, Message: "secret nowhere",
		}},
		"long": {hook: to("/broken", func(s *v1alpha1.WebhookSpec) {
			s.Response.Error = `"` + strings.Repeat("boring ", 500) + `"`
		}), Case: judge.Case{
			Reason: "a long story",
			Want:   why.BackOff, Evidence: []string{"error=boring"}, Lacks: strings.Repeat("boring ", 400),
		}},
		"uncalled": {hook: to("/ok", operationbed.CallbackHook), Case: judge.Case{
			Reason: "no callbacks are accepted",
			Want:   why.Ended, Evidence: []string{"reason=Invalid", "error=the controller has none"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.ask.Resource, tc.ask.Webhooks = app(name), []string{name}
			b.Webhook(name, tc.hook)
			b.Schedule(tc.ask)
			asks := a
			asks.T = t
			asks.judge(name, tc.Case)
		})
	}
}
