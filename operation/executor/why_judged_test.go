package executor_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
	"github.com/fairlead-io/fairlead/why"
)

// judged is what has to be told first of a situation, and what is said with it.
type judged struct {
	id       string // of the resource
	want     why.Type
	message  string   // a part of it
	advice   string   // a part of it
	evidence []string // "key=part"
	then     []why.Type
	until    time.Duration // about when from now; 0: no matter; negative: not told
	progress bool
}

// faults says what of an answer is not as it has to be.
func (j judged) faults(a why.Answer) (all []string) {
	if len(a.Causes) == 0 {
		return []string{"nothing is told"}
	}
	c := a.Causes[0]
	if c.Type != j.want {
		all = append(all, "it is not "+string(j.want))
	}
	if !strings.Contains(c.Message, j.message) {
		all = append(all, "the message does not say "+j.message)
	}
	if !strings.Contains(c.Advice, j.advice) || c.Type != why.Ended && !c.Progress && c.Advice == "" {
		all = append(all, "the advice does not say "+j.advice)
	}
	for _, pair := range j.evidence {
		key, part, _ := strings.Cut(pair, "=")
		if got := c.Evidence[key]; got == "" || !strings.Contains(got, part) {
			all = append(all, "the evidence lacks "+pair)
		}
	}
	for i, next := range j.then {
		if len(a.Causes) < i+2 || a.Causes[i+1].Type != next {
			all = append(all, "then "+string(next)+" is to be told")
		}
	}
	switch left := time.Until(c.Until); {
	case j.until > 0 && (left > j.until+10*time.Second || left < j.until*3/4-10*time.Second):
		all = append(all, "until is not about in "+j.until.String())
	case j.until < 0 && !c.Until.IsZero():
		all = append(all, "there is an until")
	}
	if c.Type != why.Ended && c.Since.IsZero() {
		all = append(all, "there is no since")
	}
	if a.Stuck != (c.Type != why.Ended && !j.progress) {
		all = append(all, "stuck is wrong")
	}
	return all
}

// judge waits until the answer about an operation is as it has to be.
func (a asking) judge(j judged) {
	a.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(5 * time.Second)
	defer patience.Stop()
	for {
		of := a.object("Operation", nameOf(app(j.id)))
		got := why.Ask(a.ctx, of, a.e)
		faults := j.faults(got)
		if len(faults) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-patience.C:
			text, err := json.MarshalIndent(got, "", "  ")
			a.t.Errorf("%s: %s\n%s %v", j.id, strings.Join(faults, "; "), text, err)
			return
		}
	}
}

// TestWhyJudged makes situations that an operator meets, side by side, and asks for the first cause of each.
func TestWhyJudged(t *testing.T) {
	b := setup(t)
	asked, open := b.gate("/hold")
	defer open()
	hold := b.receiver.answer
	hour := metav1.Duration{Duration: time.Hour}
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
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
		case "/async", "/asyncdown":
			w.Header().Set("Location", "/jobs"+path)
			w.WriteHeader(http.StatusAccepted)
		case "/jobs/async":
			w.WriteHeader(http.StatusNotFound)
		case "/jobs/asyncdown":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/back":
			w.WriteHeader(http.StatusAccepted)
		case "/once": // the first one is accepted, what follows fails
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
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	rarely := func(s *v1alpha1.WebhookSpec) { s.Retry.InitialInterval, s.Retry.MaxInterval = hour, hour }
	at := func(url string) func(s *v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) { rarely(s); s.Request.URL = url }
	}
	hold1 := func(s *v1alpha1.WebhookSpec) { s.RequestTimeout = metav1.Duration{Duration: time.Minute} }
	b.webhook("hold", hold1)
	b.webhook("next", nil)
	b.webhook("tls", at(tls.URL))
	b.webhook("dns", at("http://crm.invalid/"))
	b.webhook("closed", at(refuses))
	b.webhook("judged", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.Response.Success = b.receiver.URL+"/ok", `response.body.state == "done"`
	})
	b.webhook("retries", func(s *v1alpha1.WebhookSpec) {
		rarely(s)
		s.Request.URL, s.Response.Retry = b.receiver.URL+"/ok", `response.body.state == "refused"`
	})
	b.webhook("nolocation", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.Mode = b.receiver.URL+"/ok", v1alpha1.ModeAsync
	})
	b.webhook("async", func(s *v1alpha1.WebhookSpec) { s.Mode, s.Poll.Interval.Duration = v1alpha1.ModeAsync, time.Second })
	b.webhook("asyncdown", func(s *v1alpha1.WebhookSpec) {
		s.Mode, s.Poll.Interval.Duration = v1alpha1.ModeAsync, 200*time.Millisecond
	})
	b.webhook("dated", nil)
	b.webhook("later", nil)
	b.webhook("broken", rarely)
	b.webhook("short", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL = b.receiver.URL + "/broken"
		s.Retry.InitialInterval, s.Retry.MaxInterval = hours(300), hours(300)
		s.Timeout = metav1.Duration{Duration: 10 * time.Minute}
	})
	b.webhook("once", func(s *v1alpha1.WebhookSpec) {
		callbackHook(s)
		s.Timeout, s.Breaker = metav1.Duration{Duration: 10 * time.Minute}, v1alpha1.WebhookBreaker{Failures: 1, OpenFor: hours(1)}
		s.Retry.MaxAttempts = 1
	})
	b.webhook("slowly", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL = b.receiver.URL + "/later"
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: time.Minute}}
	})
	b.webhook("tired", func(s *v1alpha1.WebhookSpec) {
		hold1(s)
		s.Retry.MaxAttempts = 1
		s.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: 100 * time.Millisecond}}
	})
	b.webhook("bad", nil)
	b.webhook("expr", func(s *v1alpha1.WebhookSpec) { s.Response.Success = "response.(" })
	b.webhook("template", func(s *v1alpha1.WebhookSpec) { s.Request.Body = new(`{"x":"{{.Resource.nothing}}"}`) })
	auth := func(secret string) func(s *v1alpha1.WebhookSpec) {
		return func(s *v1alpha1.WebhookSpec) {
			rarely(s)
			s.Auth = &v1alpha1.WebhookAuth{Bearer: &v1alpha1.SecretAuth{SecretRef: v1alpha1.SecretReference{Name: secret}}}
		}
	}
	b.webhook("nosecret", auth("nowhere"))
	b.webhook("wrongkey", auth("wrong"))
	b.secret("wrong", map[string]string{"password": "x"})
	b.label(secretsResource, "wrong", "true")
	b.webhook("noaccount", func(s *v1alpha1.WebhookSpec) {
		s.Auth = &v1alpha1.WebhookAuth{ServiceAccountToken: &v1alpha1.ServiceAccountTokenAuth{
			Audience: "crm", ServiceAccountName: "nobody",
		}}
	})
	b.webhook("ca", func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.TLS = tls.URL, &v1alpha1.WebhookTLS{CASecretRef: &v1alpha1.SecretReference{Name: "wrong"}}
		rarely(s)
	})

	a := asking{bench: b}
	b.startWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(e *executor.Executor) { a.e = e })
	schedule := func(id string, r operation.Request) {
		t.Helper()
		r.Resource = app(id)
		b.schedule(r)
	}
	for _, hook := range []string{
		"tls", "dns", "closed", "judged", "retries", "nolocation", "async", "asyncdown", "dated", "broken", "short", "expr",
		"template", "nosecret", "wrongkey", "noaccount", "slowly", "ca",
	} {
		schedule(hook, operation.Request{Webhooks: []string{hook}})
	}
	lock := []operation.Resource{database}
	schedule("first", operation.Request{Webhooks: []string{"nowhere"}, Lock: lock})
	a.judge(judged{id: "first", want: why.WebhookMissing, evidence: []string{"webhook=nowhere"}})
	schedule("second", operation.Request{Webhooks: []string{"next"}, Lock: append(lock, operation.Resource{Type: "db", ID: "8"})})
	schedule("third", operation.Request{Webhooks: []string{"next"}, Lock: []operation.Resource{{Type: "db", ID: "8"}}})
	schedule("late", operation.Request{Webhooks: []string{"later"}, Timeout: 10 * time.Minute})
	schedule("good", operation.Request{Webhooks: []string{"once"}, CorrelationID: "good"})
	a.judge(judged{id: "good", want: why.Parked, evidence: []string{"waitsFor=callback"}, until: 10 * time.Minute})
	schedule("ill", operation.Request{Webhooks: []string{"once"}})
	a.judge(judged{id: "ill", want: why.Ended, evidence: []string{"reason=RetriesExhausted"}})
	schedule("shut", operation.Request{Webhooks: []string{"once"}})
	a.judge(judged{id: "shut", want: why.CircuitOpen, evidence: []string{"state=Open"}, until: time.Hour})
	schedule("tired", operation.Request{Webhooks: []string{"tired"}})
	a.judge(judged{id: "tired", want: why.Ended})
	schedule("trial", operation.Request{Webhooks: []string{"tired"}, CorrelationID: "hold"})
	b.received(asked)
	schedule("half", operation.Request{Webhooks: []string{"tired"}})
	schedule("undo", operation.Request{Webhooks: []string{"next", "bad"}, Compensate: []string{"broken"}})
	schedule("untold", operation.Request{Webhooks: []string{"next"}, Notify: "nowhere"})
	schedule("two", operation.Request{Webhooks: []string{"hold", "nowhere"}, Execution: v1alpha1.ExecutionParallel})
	schedule("timed", operation.Request{Webhooks: []string{"nowhere"}, Timeout: time.Second})
	schedule("flies", operation.Request{Webhooks: []string{"hold"}})
	schedule("stopping", operation.Request{Webhooks: []string{"hold", "next"}})
	a.judge(judged{id: "stopping", want: why.Parked, message: "it calls", progress: true})
	if _, err := b.scheduler.Cancel(b.ctx, app("stopping"), ""); err != nil {
		t.Fatal(err)
	}

	for _, j := range []judged{
		{id: "second", want: why.LockHeld, evidence: []string{"holder=app/first"}, then: []why.Type{why.WebhookMissing}},
		{id: "third", want: why.LockHeld, evidence: []string{"holder=app/second"}, then: []why.Type{why.LockHeld, why.WebhookMissing}},
		{id: "tls", want: why.BackOff, evidence: []string{"error=certificate"}, advice: "spec.tls.caSecretRef"},
		{id: "dns", want: why.BackOff, evidence: []string{"error=crm.invalid"}, advice: "name of the host"},
		{id: "closed", want: why.BackOff, evidence: []string{"error=refused"}, advice: "listens"},
		{id: "judged", want: why.Ended, evidence: []string{"reason=WebhookFailed", "error=no such plan"}},
		{id: "retries", want: why.BackOff, evidence: []string{"status=200", "error=no such plan"}},
		{id: "nolocation", want: why.Ended, evidence: []string{"reason=WebhookFailed", "error=URL to poll"}},
		{id: "async", want: why.BackOff, evidence: []string{"waitsFor=poll", "status=404"}, message: "poll"},
		{id: "asyncdown", want: why.CircuitOpen, evidence: []string{"error=503"}, then: []why.Type{why.BackOff}},
		{id: "dated", want: why.RetryAfter, evidence: []string{"status=503"}, until: time.Hour},
		{id: "late", want: why.RetryAfter, message: "is over before", until: 10 * time.Minute},
		{id: "broken", want: why.BackOff, evidence: []string{"status=500"}},
		{id: "short", want: why.BackOff, message: "is over before", until: 10 * time.Minute},
		{id: "slowly", want: why.RetryAfter, until: 2 * time.Hour},
		{id: "expr", want: why.Ended, evidence: []string{"reason=Invalid", "error=response.success"}},
		{id: "template", want: why.Ended, evidence: []string{"reason=Invalid", "error=nothing"}},
		{id: "nosecret", want: why.NotReleased, message: "secret nowhere"},
		{id: "wrongkey", want: why.BackOff, evidence: []string{"error=it has no token"}, advice: "Secret"},
		{id: "ca", want: why.BackOff, evidence: []string{"error=it has no ca.crt"}, advice: "Secret"},
		{id: "noaccount", want: why.NotReleased, message: "service account nobody"},
		{id: "good", want: why.Parked, evidence: []string{"waitsFor=callback"}, until: 10 * time.Minute},
		{id: "half", want: why.CircuitOpen, evidence: []string{"state=HalfOpen"}},
		{id: "undo", want: why.BackOff, evidence: []string{"purpose=compensate", "webhook=broken"}, message: "compensation"},
		{id: "untold", want: why.WebhookMissing, evidence: []string{"webhook=nowhere"}},
		{id: "two", want: why.WebhookMissing, evidence: []string{"webhook=nowhere"}, then: []why.Type{why.Parked}},
		{id: "timed", want: why.Ended, evidence: []string{"reason=WebhookNotFound"}},
		{id: "flies", want: why.Parked, evidence: []string{"webhook=hold"}, progress: true},
		{id: "stopping", want: why.Ended, evidence: []string{"reason=Canceled"}}, // its call is cut off
	} {
		a.judge(j)
	}
	b.deleteWebhook("once")
	a.judge(judged{id: "good", want: why.Parked, evidence: []string{"waitsFor=callback"}})
	b.delete(nameOf(app("flies")))
	b.eventually("gone", func() bool { return len(a.e.Why(b.ctx, a.object("Operation", nameOf(app("flies"))))) == 0 })
}
