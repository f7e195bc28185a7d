package e2e_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyOfSilentReceiver calls a receiver that accepts connections and never answers. The first try may take its whole
// time. The error of each try is shown during the next one, in the status, op list and why.
func TestWhyOfSilentReceiver(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	calls, release := make(chan struct{}, 100), make(chan struct{})
	defer close(release)
	s.receiver.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	s.webhook("silent", "/", func(w *v1alpha1.WebhookSpec) {
		w.RequestTimeout = metav1.Duration{Duration: 3 * time.Second}
		w.Retry.InitialInterval = metav1.Duration{Duration: 50 * time.Millisecond}
		w.Retry.MaxInterval = w.Retry.InitialInterval
	})
	s.webhook("slow", "/", nil) // its first try outlasts the test
	p := patient{s, <-s.controller(s.kubeconfig).address, s.reader("sees", "operations", "webhooks")}
	s.asks("first", operations.Request{Webhooks: []string{"slow"}})
	<-calls
	s.eventually("under way in its first try", func() bool {
		a, code := p.why("operation/app/first")
		return code == 0 && len(a.Causes) > 0 && !a.Stuck &&
			strings.HasPrefix(a.Causes[0].Message, "it calls webhook slow")
	})
	s.asks("shop", operations.Request{Webhooks: []string{"silent"}})
	for range 2 {
		<-calls
	}
	const silence = "no answer within 3s"
	a := p.first("operation/app/shop", why.BackOff, "error="+silence, "webhook=silent")
	if n, err := strconv.Atoi(a.Causes[0].Evidence["attempts"]); err != nil || n < 2 {
		t.Errorf("the number of tries is %q: %v", a.Causes[0].Evidence["attempts"], err)
	}
	if !a.Stuck || a.Causes[0].Progress || !strings.Contains(a.Causes[0].Advice, "requestTimeout") {
		t.Errorf("during a later try: %+v", a)
	}
	s.eventually("known during a later try", func() bool {
		op, err := s.scheduler.Get(s.ctx, operations.Resource{Type: "app", ID: "shop"})
		if err != nil || len(op.Status.Webhooks) == 0 {
			return false
		}
		e := op.Status.Webhooks[0]
		if e.RetriesCount == 0 || e.NextAttemptAt != nil { // no try is under way
			return false
		}
		if !strings.Contains(e.Message, silence) {
			t.Fatalf("the status has lost the error of the previous try: %+v", e)
		}
		return true
	})
	args := []string{"op", "list", "-n", s.namespace, "--kubeconfig", s.kubeconfig}
	if code, out, errs := fairlead(t, args...); code != 0 || !strings.Contains(out, "webhook silent: "+silence) {
		t.Errorf("op list: exit code %d: %s%s", code, out, errs)
	}
	var listed struct{ Items []operations.View }
	_, out, _ := fairlead(t, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &listed); err != nil ||
		!slices.ContainsFunc(listed.Items, func(v operations.View) bool {
			return strings.Contains(v.LastError, silence)
		}) {
		t.Errorf("op list -o json: %v: %s", err, out)
	}
	_, out, errs := fairlead(t, "op", "list", "-A", "--kubeconfig", s.kubeconfig)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), s.namespace+" app/shop ") {
		t.Errorf("op list -A: %s%s", out, errs)
	}
}

// TestWhyOfOpenCircuit: the circuit of a Webhook stays open after its time has passed, until a call succeeds. So why
// reports it as a cause. A failed operation is reported as failed.
func TestWhyOfOpenCircuit(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	s.webhook("dead", "/", func(w *v1alpha1.WebhookSpec) {
		w.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: 50 * time.Millisecond}}
		w.Retry.MaxAttempts = 1
	})
	token := s.reader("sees", "operations", "webhooks")
	p := patient{s, <-s.controller(s.kubeconfig).address, token}
	s.asks("shop", operations.Request{Webhooks: []string{"dead"}})
	p.first("operation/app/shop", why.Ended, "phase=Failed", "reason=RetriesExhausted")
	var a why.Answer
	s.eventually("open after its time", func() bool {
		a = p.first("webhook/dead", why.CircuitOpen, "state=Open", "error=500")
		return strings.Contains(a.Causes[0].Message, "its next call decides")
	})
	if !a.Stuck || a.Causes[0].Advice == "" || !a.Causes[0].Until.IsZero() {
		t.Errorf("the open circuit: %+v", a)
	}
	code, out, errs := fairlead(t, "why", "operation/app/shop", "-n", s.namespace, "--url", "http://"+p.address,
		"--token", token)
	if code != 0 || strings.Contains(out, "Nothing is wrong") || !strings.Contains(out, "\nFailed: it ended at ") {
		t.Errorf("of a failed operation: exit code %d: %s%s", code, out, errs)
	}
}
