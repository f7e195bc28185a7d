package executor_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
	"github.com/fairlead-io/fairlead/operation/install"
)

// keysIn collects the idempotency keys of all requests, in the order of their first ones.
func keysIn(b *bench, answer func(http.ResponseWriter, *http.Request, string, int)) (sent func() []string) {
	seen := make(chan string, 64)
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		seen <- r.Header.Get("Idempotency-Key")
		answer(w, r, path, n)
	}
	return func() (all []string) {
		for {
			select {
			case key := <-seen:
				all = append(all, key)
			default:
				return all
			}
		}
	}
}

// keysOf returns the keys that a status has.
func keysOf(op *v1alpha1.Operation) (all []string) {
	for _, e := range append(op.Status.Webhooks, op.Status.Compensations...) {
		all = append(all, e.IdempotencyKey)
	}
	if n := op.Status.Notification; n != nil {
		all = append(all, n.IdempotencyKey)
	}
	return all
}

// TestKeysOfNamespaces runs operations of the same id in two namespaces, with Webhooks of the same names. No receiver
// takes one's calls for the other's.
func TestKeysOfNamespaces(t *testing.T) {
	first := setup(t)
	second := setupOn(t, first.config, env.Namespace(t))
	request := operation.Request{
		ID: "same", Webhooks: []string{"good", "bad"}, Compensate: []string{"undo"},
		Notify: "tell",
	}
	for _, b := range []*bench{first, second} {
		sent := keysIn(b, func(w http.ResponseWriter, _ *http.Request, path string, _ int) {
			if path == "/bad" {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		for _, name := range []string{"good", "bad", "undo", "tell"} {
			b.webhook(name, nil)
		}
		b.start(nil)
		op := b.end(b.schedule(request))
		want := []string{".same.good", ".same.bad", ".same.undo.compensate", ".same.tell.notify"}
		for i := range want {
			want[i] = b.namespace + want[i]
		}
		if diff := cmp.Diff(want, sent()); diff != "" {
			t.Errorf("sent, -want +got:\n%s", diff)
		}
		if diff := cmp.Diff(want, keysOf(op)); diff != "" {
			t.Errorf("recorded, -want +got:\n%s", diff)
		}
	}
}

// TestOldKeys goes on with an operation of which an older version has begun a call: that one keeps its key on every
// try, and those that begin now have a new one.
func TestOldKeys(t *testing.T) {
	b := setup(t)
	sent := keysIn(b, func(w http.ResponseWriter, _ *http.Request, path string, n int) {
		if path == "/old" && n < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	b.webhook("old", nil)
	b.webhook("next", nil)
	b.schedule(operation.Request{ID: "one", Webhooks: []string{"old", "next"}})
	b.changeStatus(func(op *v1alpha1.Operation) {
		now := metav1.NowMicro()
		op.Status.OperationID, op.Status.OperationType, op.Status.Phase = "one", op.Spec.OperationType,
			v1alpha1.PhaseInProgress
		op.Status.InitializedAt = &now
		op.Status.Webhooks = []v1alpha1.WebhookCallStatus{{
			WebhookID: "old", State: v1alpha1.PhaseInProgress, AttemptID: uuid.NewString(), StartedAt: &now,
		}}
	})
	b.start(nil)
	op := b.end(b.get())
	if diff := cmp.Diff([]string{"one.old", "one.old", "one.old", b.namespace + ".one.next"}, sent()); diff != "" {
		t.Errorf("sent, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", b.namespace + ".one.next"}, keysOf(op)); diff != "" {
		t.Errorf("recorded, -want +got:\n%s", diff)
	}
}

// TestDroppedKeys has an older replica write a status, as it does for a callback: it drops the keys that it knows
// nothing of. They are the same afterwards, and are recorded again. Nor does it change a key if somebody writes another
// one.
func TestDroppedKeys(t *testing.T) {
	for name, key := range map[string]string{"Dropped": "", "Forged": "another.one.work"} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			asked, answer := make(chan string, 4), make(chan struct{}, 1)
			sent := keysIn(b, func(w http.ResponseWriter, r *http.Request, _ string, n int) {
				if n == 1 {
					asked <- ""
					<-answer
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			b.webhook("work", nil)
			stop := b.start(nil)
			b.schedule(operation.Request{ID: "one", Webhooks: []string{"work"}})
			b.received(asked)
			b.changeStatus(func(op *v1alpha1.Operation) { op.Status.Webhooks[0].IdempotencyKey = key })
			answer <- struct{}{}
			stop() // what is remembered is not what counts
			b.start(nil)
			op := b.end(b.get())
			want := b.namespace + ".one.work"
			got := sent()
			if len(got) < 2 {
				t.Errorf("it was called %d times", len(got))
			}
			for _, sent := range got {
				if sent != want {
					t.Errorf("sent was %s, not %s", sent, want)
				}
			}
			if diff := cmp.Diff([]string{want}, keysOf(op)); diff != "" && key == "" {
				t.Errorf("recorded, -want +got:\n%s", diff)
			}
		})
	}
}

// TestOldCRD runs with a CustomResourceDefinition that does not know the field of the key: no call is made, and
// everybody is told why. When it is updated the operation goes on, and it can be cancelled before.
func TestOldCRD(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	b := setupOn(t, c.Config(), clustertest.Namespace(t, c.Config()))
	if err := install.CRDs(b.ctx, b.calls); err != nil {
		t.Fatal(err)
	}
	crds := v1alpha1.CRDs()
	for _, crd := range crds {
		raw, err := json.Marshal(crd)
		if err != nil {
			t.Fatal(err)
		}
		if crd.Name != "operations.fairlead.io" {
			continue
		}
		old := &apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), `"idempotencyKey"`, `"somethingElse"`)),
			old); err != nil {
			t.Fatal(err)
		}
		b.apply(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "CustomResourceDefinition", old)
	}
	var calls atomic.Int32
	b.receiver.answer = func(http.ResponseWriter, *http.Request, string, int) { calls.Add(1) }
	b.webhook("work", nil)
	told, log := &warnings{}, &syncBuffer{}
	b.eventually("pruned", func() bool { // the server takes a moment
		op := b.schedule(operation.Request{
			ID:       uuid.NewString(),
			Resource: operation.Resource{Type: "app", ID: uuid.NewString()},
		})
		op.Status.OperationID, op.Status.OperationType = op.Spec.OperationID, op.Spec.OperationType
		op.Status.Webhooks = []v1alpha1.WebhookCallStatus{
			{WebhookID: "work", State: v1alpha1.PhaseFailed, IdempotencyKey: "x"},
		}
		now := metav1.NowMicro()
		op.Status.Phase, op.Status.FinishedAt = v1alpha1.PhaseFailed, &now
		return b.putStatus(op).Status.Webhooks[0].IdempotencyKey == ""
	})
	b.start(func(o *executor.Options) { o.Recorder, o.Logger = told, log.logger() })
	first := b.schedule(operation.Request{
		Resource: operation.Resource{Type: "app", ID: "first"},
		Webhooks: []string{"work"},
	})
	b.schedule(operation.Request{Webhooks: []string{"work"}})
	b.eventually("told",
		func() bool { return strings.Contains(operation.ViewOf(b.get()).Waiting, "operations.fairlead.io") })
	b.eventually("recorded", func() bool {
		all := strings.Join(told.told(), "\n")
		return strings.Contains(all, v1alpha1.ReasonOutdatedCRD) && strings.Contains(all, "operations.fairlead.io") &&
			strings.Contains(log.String(), "crd=operations.fairlead.io")
	})
	if _, err := b.scheduler.Cancel(b.ctx, resourceOf(first), first.EffectiveID()); err != nil {
		t.Fatal(err)
	}
	if got := b.end(first); b.reason(got) != v1alpha1.ReasonCanceled {
		t.Errorf("a cancelled one became %+v", got.Status)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	if err := install.CRDs(b.ctx, b.calls); err != nil {
		t.Fatal(err)
	}
	got := b.end(b.get())
	if diff := cmp.Diff([]string{b.namespace + "." + got.EffectiveID() + ".work"}, keysOf(got)); diff != "" ||
		got.Status.Phase != v1alpha1.PhaseSuccess || calls.Load() != 1 {
		t.Errorf("it became %+v after %d calls; keys, -want +got:\n%s", got.Status, calls.Load(), diff)
	}
	if n := len(told.told()); n > 3 { // one for each operation, and the cancellation
		t.Errorf("it is told again and again: %q", told.told())
	}
}

// TestTokensStayValid: a token of an older version is read by this one.
func TestTokensStayValid(t *testing.T) {
	t.Parallel()
	const old = "eyJuIjoic2hvcCIsIm8iOiJhcHAtYTEiLCJpIjoib25lIiwidyI6IndvcmsiLCJwIjoibm90aWZ5In0."
	cb := executor.NewCallbacks("http://fairlead.example", []byte("0123456789abcdef0123456789abcdef"))
	want := executor.Callback{Namespace: "shop", Name: "app-a1", OperationID: "one", WebhookID: "work", Purpose: "notify"}
	made := cb.Token(want)
	if !strings.HasPrefix(made, old) {
		t.Errorf("the payload has changed: %s", made)
	}
	const signature = "u7g93F4xYOZF3vEjTrepxaqdBE8ydAWbaZOnR83XxS4"
	if got, err := cb.Parse(old + signature); err != nil || got != want {
		t.Errorf("%+v (%v)", got, err)
	}
}
