package e2e_test

import (
	"errors"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// TestSharedCircuit kills a controller that shares operations while the circuit of a Webhook is open. The controller
// that takes over makes no call to that Webhook.
func TestSharedCircuit(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	var calls atomic.Int32
	s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	s.webhook("dead", "/", func(w *v1alpha1.WebhookSpec) {
		w.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: 10 * time.Minute}}
	})
	first := s.controller(s.kubeconfig, "--insecure-no-auth", "--shards")
	s.asks("first", operations.Request{Webhooks: []string{"dead"}})
	s.eventually("the open circuit is recorded", func() bool {
		hook := s.object(v1alpha1.WebhooksResource, "dead")
		state, _, _ := unstructured.NestedString(hook.Object, "status", "breaker", "state")
		return state == "Open"
	})
	s.killed(first)
	p := patient{s, <-s.controller(s.kubeconfig, "--insecure-no-auth", "--shards").address, ""}
	s.eventually("all slots", func() bool {
		_, body := s.get("http://" + p.address + "/metrics")
		return holdsAll.MatchString(body)
	})
	s.asks("second", operations.Request{Webhooks: []string{"dead"}})
	for _, id := range []string{"first", "second"} {
		p.first("operation/app/"+id, why.CircuitOpen, "webhook=dead")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d calls were made, want that of the first controller only", n)
	}
}

var holdsAll = regexp.MustCompile(`(?m)^fairlead_shard_slots_held(\{[^}]*\})? 64$`)

// TestSharedClock takes over an operation whose next call was recorded by a controller with a clock that is an hour
// ahead. That call is made at once.
func TestSharedClock(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	var calls atomic.Int32
	s.receiver.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s.webhook("flaky", "/", func(w *v1alpha1.WebhookSpec) {
		w.Retry.InitialInterval = metav1.Duration{Duration: 2 * time.Minute}
		w.Breaker.Failures = 100
	})
	first := s.controller(s.kubeconfig, "--insecure-no-auth", "--shards")
	s.asks("late", operations.Request{Webhooks: []string{"flaky"}})
	var op *unstructured.Unstructured
	var webhooks []any
	recorded := func() bool {
		op = s.object(v1alpha1.OperationsResource, v1alpha1.OperationName("app", "late"))
		webhooks, _, _ = unstructured.NestedSlice(op.Object, "status", "webhooks")
		return len(webhooks) == 1 && webhooks[0].(map[string]any)["nextAttemptAt"] != nil
	}
	s.eventually("the next call is recorded", recorded)
	s.killed(first)
	s.eventually("the state after its end", recorded)
	webhooks[0].(map[string]any)["nextAttemptAt"] = metav1.NowMicro().Add(time.Hour).UTC().Format(metav1.RFC3339Micro)
	if err := unstructured.SetNestedSlice(op.Object, webhooks, "status", "webhooks"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.resource(v1alpha1.OperationsResource).UpdateStatus(s.ctx, op, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.controller(s.kubeconfig, "--insecure-no-auth", "--shards")
	s.eventually("the end", func() bool { return s.over("late") })
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls were made, want 2", n)
	}
}

// TestSharedPrograms starts members of other programs in a group: a watch of another kind, and a controller for another
// namespace. Each ends at once, with one line that shows both programs, and exit code 2.
func TestSharedPrograms(t *testing.T) {
	t.Parallel()
	s, other := newSite(t, env.Config(t)), env.Namespace(t)
	group := s.namespace + "/group"
	first := s.controller(s.kubeconfig, "--insecure-no-auth", "--shards="+group)
	s.eventually("a group", func() bool {
		_, out, _ := fairlead(t, "shards", group, "--kubeconfig", s.kubeconfig)
		return strings.Contains(out, "64 of 64")
	})
	p := s.start("--kubeconfig", s.kubeconfig, "--namespace", other, "--system-namespace", s.namespace,
		"--insecure-no-auth", "--shards="+group)
	var exit *exec.ExitError
	err := p.end(s.ctx, t)
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	if last := lines[len(lines)-1]; !errors.As(err, &exit) || exit.ExitCode() != exitUsage ||
		!strings.Contains(last, "in "+other) || !strings.Contains(last, "in "+s.namespace) {
		t.Errorf("the controller for another namespace: %v\n%s", err, p.log)
	}
	s.killed(first)

	maps := s.namespace + "/maps"
	watch := func(kind string) []string {
		return []string{
			kind, "-n", s.namespace, "--kubeconfig", program.Kubeconfig(t, s.config, ""), "--shard-group", maps,
		}
	}
	startWatching(t, watch("configmaps")...).holds(64)
	code, _, errs := fairlead(t, slices.Concat([]string{"watch"}, watch("secrets"))...)
	lines = strings.Split(strings.TrimSpace(errs), "\n")
	if last := lines[len(lines)-1]; code != exitUsage || !strings.Contains(last, `"fairlead watch secrets"`) ||
		!strings.Contains(last, `"fairlead watch configmaps"`) {
		t.Errorf("the watch of another kind: exit code %d: %s", code, errs)
	}
}

func (s *site) resource(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(s.config).Resource(gvr).Namespace(s.namespace)
}

func (s *site) object(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.resource(gvr).Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

// killed ends a controller by SIGKILL.
func (s *site) killed(p *process) {
	s.t.Helper()
	if err := p.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = p.end(s.ctx, s.t) // it was killed
}
