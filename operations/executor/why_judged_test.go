package executor_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/why"
)

// judged is the expected answer about an operation, by the id of its resource.
type judged struct {
	id string
	judge.Case
}

// judge waits for the expected answer about an operation.
func (a asking) judge(id string, j judge.Case) why.Answer {
	a.T.Helper()
	deadline, _ := a.Ctx.Deadline()
	return j.Await(a.T, id, time.Until(deadline), func() (why.Answer, error) {
		return why.Ask(a.Ctx, a.object("Operation", nameOf(app(id))), a.e), nil
	})
}

// TestWhyJudged creates situations that an operator meets, side by side, and asks for the first cause of each.
func TestWhyJudged(t *testing.T) {
	b := setup(t)
	asked, open := b.gate("/hold")
	defer open()
	hold := b.Receiver.Answer
	hour := metav1.Duration{Duration: time.Hour}
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch path {
		case "/ok":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"state":"refused","error":"no such plan"}`))
		case "/dated":
			w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/later":
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/bad":
			w.WriteHeader(http.StatusBadRequest)
		case "/jobs/html":
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte("<html>Sign in"))
		case "/jobs/misfit":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"state":"running"}`))
		case "/async", "/asyncdown", "/html", "/misfit":
			w.Header().Set("Location", "/jobs"+path)
			w.WriteHeader(http.StatusAccepted)
		case "/jobs/async":
			w.WriteHeader(http.StatusNotFound)
		case "/jobs/asyncdown":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/back":
			w.WriteHeader(http.StatusAccepted)
		case "/once": // the first one is accepted, later ones fail
			if strings.Contains(r.Header.Get("X-Correlation-ID"), "good") {
				w.WriteHeader(http.StatusAccepted)
			} else {
				w.WriteHeader(http.StatusInternalServerError)
			}
		case "/tired":
			if strings.Contains(r.Header.Get("X-Correlation-ID"), "hold") {
				hold(w, r, "/hold", n)
			} else {
				w.WriteHeader(http.StatusInternalServerError)
			}
		default:
			hold(w, r, path, n)
		}
	}
	tls := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer tls.Close()
	rarely := func(s *v1alpha1.WebhookSpec) { s.Retry.InitialInterval, s.Retry.MaxInterval = hour, hour }
	at := func(url string) func(s *v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) { rarely(s); s.Request.URL = url }
	}
	b.Webhook("hold", nil)
	b.Webhook("next", nil)
	b.Webhook("tls", at(tls.URL))
	b.Webhook("dns", at("http://crm.invalid/"))
	b.Webhook("closed", at("http://127.0.0.1:1"))
	b.Webhook("judged", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.Response.Success = b.Receiver.URL+"/ok", `response.body.state == "done"`
	})
	b.Webhook("retries", func(s *v1alpha1.WebhookSpec) {
		rarely(s)
		s.Request.URL, s.Response.Retry = b.Receiver.URL+"/ok", `response.body.state == "refused"`
	})
	b.Webhook("nolocation", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.Mode = b.Receiver.URL+"/ok", v1alpha1.ModeAsync
	})
	polled := func(every time.Duration) func(s *v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) { s.Mode, s.Poll.Interval.Duration = v1alpha1.ModeAsync, every }
	}
	b.Webhook("async", polled(time.Second))
	b.Webhook("html", polled(time.Second))
	b.Webhook("misfit", func(s *v1alpha1.WebhookSpec) {
		polled(time.Second)(s)
		s.Poll.Succeeded = "response.body.done"
	})
	b.Webhook("wrongfield", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.Response.Success = b.Receiver.URL+"/ok", "response.body.done"
	})
	b.Webhook("asyncdown", polled(200*time.Millisecond))
	b.Webhook("dated", nil)
	b.Webhook("later", nil)
	b.Webhook("broken", rarely)
	b.Webhook("short", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL = b.Receiver.URL + "/broken"
		s.Retry.InitialInterval, s.Retry.MaxInterval = hours(300), hours(300)
		s.Timeout = metav1.Duration{Duration: 10 * time.Minute}
	})
	b.Webhook("once", func(s *v1alpha1.WebhookSpec) {
		operationbed.CallbackHook(s)
		s.Timeout = metav1.Duration{Duration: 10 * time.Minute}
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: hours(1)}
		s.Retry.MaxAttempts = 1
	})
	b.Webhook("slowly", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL = b.Receiver.URL + "/later"
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: time.Minute}}
	})
	b.Webhook("tired", func(s *v1alpha1.WebhookSpec) {
		s.Retry.MaxAttempts = 1
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: 100 * time.Millisecond}}
	})
	b.Webhook("bad", nil)
	b.Webhook("expr", func(s *v1alpha1.WebhookSpec) { s.Response.Success = "response.(" })
	b.Webhook("template", func(s *v1alpha1.WebhookSpec) { s.Request.Body = new(`{"x":"{{.Resource.nothing}}"}`) })
	auth := func(secret string) func(s *v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) {
			rarely(s)
			ref := v1alpha1.SecretReference{Name: secret}
			s.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: ref}}
		}
	}
	b.Webhook("nosecret", auth("nowhere"))
	b.Webhook("wrongkey", auth("wrong"))
	b.secret("wrong", map[string]string{"password": "x"})
	b.label(secretsResource, "wrong", "true")
	b.Webhook("noaccount", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "nobody",
		}}
	})
	b.Webhook("ca", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.TLS = tls.URL, &v1alpha1.WebhookTLS{CASecretRef: &v1alpha1.SecretReference{Name: "wrong"}}
		rarely(s)
	})

	a := asking{bench: b}
	b.StartWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(e *executor.Executor) { a.e = e })
	schedule := func(id string, r operations.Request) {
		t.Helper()
		r.Resource = app(id)
		b.Schedule(r)
	}
	for _, hook := range []string{
		"tls", "dns", "closed", "judged", "retries", "nolocation", "async", "html", "misfit", "wrongfield", "asyncdown",
		"dated", "broken", "short",
		"expr", "template", "nosecret", "wrongkey", "noaccount", "slowly", "ca",
	} {
		schedule(hook, operations.Request{Webhooks: []string{hook}})
	}
	lock := []operations.Resource{database}
	schedule("first", operations.Request{Webhooks: []string{"nowhere"}, Lock: lock})
	a.judge("first", judge.Case{Want: why.WebhookMissing, Evidence: []string{"webhook=nowhere"}})
	other := operations.Resource{Type: "db", ID: "8"}
	schedule("second", operations.Request{Webhooks: []string{"next"}, Lock: append(lock, other)})
	schedule("third", operations.Request{Webhooks: []string{"next"}, Lock: []operations.Resource{other}})
	schedule("late", operations.Request{Webhooks: []string{"later"}, Timeout: 10 * time.Minute})
	schedule("good", operations.Request{Webhooks: []string{"once"}, CorrelationID: "good"})
	a.judge("good", judge.Case{
		Want: why.Parked, Evidence: []string{"waitsFor=callback"}, Until: 10 * time.Minute, Progress: true,
	})
	schedule("ill", operations.Request{Webhooks: []string{"once"}})
	a.judge("ill", judge.Case{Want: why.Ended, Evidence: []string{"reason=RetriesExhausted"}})
	schedule("shut", operations.Request{Webhooks: []string{"once"}})
	a.judge("shut", judge.Case{Want: why.CircuitOpen, Evidence: []string{"state=Open"}, Until: time.Hour})
	schedule("tired", operations.Request{Webhooks: []string{"tired"}})
	a.judge("tired", judge.Case{Want: why.Ended})
	schedule("trial", operations.Request{Webhooks: []string{"tired"}, CorrelationID: "hold"})
	b.Received(asked)
	schedule("half", operations.Request{Webhooks: []string{"tired"}})
	schedule("undo", operations.Request{Webhooks: []string{"next", "bad"}, Compensate: []string{"broken"}})
	schedule("untold", operations.Request{Webhooks: []string{"next"}, Notify: "nowhere"})
	schedule("two", operations.Request{Webhooks: []string{"hold", "nowhere"}, Execution: v1alpha1.ExecutionParallel})
	schedule("timed", operations.Request{Webhooks: []string{"nowhere"}, Timeout: time.Second})
	schedule("flies", operations.Request{Webhooks: []string{"hold"}})
	schedule("stopping", operations.Request{Webhooks: []string{"hold", "next"}})
	a.judge("stopping", judge.Case{Want: why.Parked, Message: "it calls", Progress: true})
	if _, err := b.Scheduler.Cancel(b.Ctx, app("stopping"), ""); err != nil {
		t.Fatal(err)
	}

	type types = []why.Type
	for _, j := range []judged{
		{"second", judge.Case{
			Want: why.LockHeld, Evidence: []string{"holder=app/first"}, Then: types{why.WebhookMissing},
		}},
		{"third", judge.Case{
			Want: why.LockHeld, Evidence: []string{"holder=app/second"}, Then: types{why.LockHeld, why.WebhookMissing},
		}},
		{"tls", judge.Case{Want: why.BackOff, Evidence: []string{"error=certificate"}, Advice: "spec.tls.caSecretRef"}},
		{"dns", judge.Case{Want: why.BackOff, Evidence: []string{"error=crm.invalid"}, Advice: "host name does not resolve"}},
		{"closed", judge.Case{Want: why.BackOff, Evidence: []string{"error=refused"}, Advice: "listens"}},
		{"judged", judge.Case{Want: why.Ended, Evidence: []string{"reason=WebhookFailed", "error=no such plan"}}},
		{"retries", judge.Case{Want: why.BackOff, Evidence: []string{"status=200", "error=no such plan"}}},
		{"nolocation", judge.Case{Want: why.Ended, Evidence: []string{"reason=WebhookFailed", "error=URL to poll"}}},
		{"async", judge.Case{Want: why.BackOff, Evidence: []string{"waitsFor=poll", "status=404"}, Message: "poll"}},
		{"html", judge.Case{
			Want: why.BackOff, Evidence: []string{"waitsFor=poll", "status=200", "error=text/html"},
			Message: "neither poll.succeeded nor poll.failed holds: answered 200 (text/html): <html>Sign in",
			Advice:  "spec.poll.failed",
		}},
		{"misfit", judge.Case{
			Want: why.BackOff, Evidence: []string{"field=spec.poll.succeeded", "error=no such key: done"},
			Message: "cannot be evaluated on the answer", Advice: "Correct spec.poll.succeeded of Webhook misfit",
		}},
		{"wrongfield", judge.Case{
			Want: why.Ended, Evidence: []string{"field=spec.response.success", "error=no such key: done"},
			Advice: "Correct spec.response.success of Webhook wrongfield",
		}},
		{"asyncdown", judge.Case{Want: why.CircuitOpen, Evidence: []string{"error=503"}, Then: types{why.BackOff}}},
		{"dated", judge.Case{Want: why.RetryAfter, Evidence: []string{"status=503"}, Until: time.Hour, Progress: true}},
		{"late", judge.Case{
			Want: why.RetryAfter, Message: "timeout expires before that", Until: 10 * time.Minute,
			Progress: true,
		}},
		{"broken", judge.Case{Want: why.BackOff, Evidence: []string{"status=500"}}},
		{"short", judge.Case{Want: why.BackOff, Message: "timeout expires before that", Until: 10 * time.Minute}},
		{"slowly", judge.Case{Want: why.RetryAfter, Until: 2 * time.Hour, Progress: true}},
		{"expr", judge.Case{Want: why.Ended, Evidence: []string{"reason=Invalid", "error=response.success"}}},
		{"template", judge.Case{Want: why.Ended, Evidence: []string{"reason=Invalid", "error=nothing"}}},
		{"nosecret", judge.Case{Want: why.NotReleased, Message: "secret nowhere"}},
		{"wrongkey", judge.Case{Want: why.BackOff, Evidence: []string{"error=it has no token"}, Advice: "Secret"}},
		{"ca", judge.Case{Want: why.BackOff, Evidence: []string{"error=it has no ca.crt"}, Advice: "Secret"}},
		{"noaccount", judge.Case{Want: why.NotReleased, Message: "service account nobody"}},
		{"good", judge.Case{
			Want: why.Parked, Evidence: []string{"waitsFor=callback"}, Until: 10 * time.Minute, Progress: true,
		}},
		{"half", judge.Case{Want: why.CircuitOpen, Evidence: []string{"state=HalfOpen"}}},
		{"undo", judge.Case{
			Want: why.BackOff, Evidence: []string{"purpose=compensate", "webhook=broken"},
			Message: "webhook bad failed first: answered 400; then webhook broken (compensation)",
		}},
		{"untold", judge.Case{Want: why.WebhookMissing, Evidence: []string{"webhook=nowhere"}}},
		{"two", judge.Case{Want: why.WebhookMissing, Evidence: []string{"webhook=nowhere"}, Then: types{why.Parked}}},
		{"timed", judge.Case{Want: why.Ended, Evidence: []string{"reason=WebhookNotFound"}}},
		{"flies", judge.Case{Want: why.Parked, Evidence: []string{"webhook=hold"}, Progress: true}},
		{"stopping", judge.Case{Want: why.Ended, Evidence: []string{"reason=Canceled"}}}, // its call is canceled
	} {
		a.judge(j.id, j.Case)
	}
	b.Edit("html", `{"spec":{"correlationHeader":"X-Other"}}`)
	a.judge("html", judge.Case{
		Want: why.BackOff, Evidence: []string{"generation=1", "newGeneration=2"}, Message: "the recorded poll URL stays",
	})
	b.Edit("hold", `{"spec":{"correlationHeader":"X-Other"}}`)
	a.judge("flies", judge.Case{
		Want: why.Parked, Evidence: []string{"generation=1", "newGeneration=2"},
		Message:  "the current attempt uses the old generation",
		Progress: true,
	})
	b.DeleteWebhook("once")
	a.judge("good", judge.Case{Want: why.Parked, Evidence: []string{"waitsFor=callback"}, Progress: true})
	b.Delete(nameOf(app("flies")))
	b.Eventually("gone", func() bool { return len(a.e.Why(b.Ctx, a.object("Operation", nameOf(app("flies"))))) == 0 })
}
