package executor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// webhookStore returns a store that holds Webhooks.
func webhookStore(t *testing.T, all ...*v1alpha1.Webhook) *store.Store {
	t.Helper()
	st := store.New(store.Options{
		Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.GroupVersion.WithKind(v1alpha1.KindWebhook), Namespaced: true,
	})
	t.Cleanup(st.Close)
	sink := st.Sink("")
	sink.Replace().Commit(source.Commit{Version: "1"})
	for _, w := range all {
		w.APIVersion, w.Kind = v1alpha1.GroupVersion.String(), v1alpha1.KindWebhook
		raw, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		o := &source.Object{Raw: raw}
		if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
			t.Fatal(err)
		}
		if err := sink.Apply(source.Added, o); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func aWebhook(name, version string) *v1alpha1.Webhook {
	w := &v1alpha1.Webhook{}
	w.Namespace, w.Name, w.UID, w.ResourceVersion, w.Generation = "ns", name, types.UID(name), version, 1
	return w
}

// accuser is a Witness with condemned Webhooks.
type accuser struct {
	webhook.Witness
	condemned, settled []Condemned
}

func (a *accuser) Condemned() []Condemned { return a.condemned }

func (a *accuser) Settled(c Condemned) { a.settled = append(a.settled, c) }

// TestHookStatus writes the status of a marked Webhook: whether it compiles, its quarantine and its breaker. Changes
// during a write become one further write, and a failed write is repeated. A status that is up to date or belongs to
// another replica is not written.
func TestHookStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bomb := aWebhook("bomb", "3")
		guilty := Condemned{Namespace: "ns", Name: "bomb", Revision: compiled.Revision(bomb), At: epoch}
		witness := &accuser{condemned: []Condemned{guilty}}
		st := webhookStore(t, aWebhook("bad", "2"), bomb)
		hooks := store.Of[v1alpha1.Webhook](st)
		own, err := newOwnership(nil, nil, call.Policy{})
		if err != nil {
			t.Fatal(err)
		}
		own.base = t.Context()
		writes, _ := newBudgets(Budget{}, slog.New(slog.DiscardHandler))
		written := make(map[string][]v1alpha1.WebhookStatus)
		fails := 1
		var quarantined []string
		h := newHookStatus(hookStatusOptions{
			own: own, releases: &releases{any: true, webhooks: hooks}, quarantine: newQuarantine(witness, hooks), budget: writes,
			compile: func(_ context.Context, hook store.Key) (*webhook.Compiled, error) {
				if hook.Name == "gone" {
					return nil, compiled.ErrNoWebhook
				}
				return nil, errors.New("no such function")
			},
			breaker: func(string, string) webhook.BreakerStatus { return webhook.BreakerStatus{State: webhook.Open} },
			patch: func(_ context.Context, hook store.Key, body []byte, answered func([]byte)) error {
				if fails--; fails == 0 {
					return errors.New("try again")
				}
				var sent struct{ Status v1alpha1.WebhookStatus }
				if err := json.Unmarshal(body, &sent); err != nil {
					return err
				}
				written[hook.Name] = append(written[hook.Name], sent.Status)
				answered(body)
				time.Sleep(time.Second)
				return nil
			},
			onQuarantined: func(_ context.Context, w *v1alpha1.Webhook,
				_ Condemned,
			) {
				quarantined = append(quarantined, w.Name)
			},
			log: slog.New(slog.DiscardHandler), now: func() time.Time { return epoch },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.run(ctx)
		}()
		bad := store.Key{Namespace: "ns", Name: "bad"}
		h.mark(bad, true) // held by another replica
		own.slots.Gain(own.layout().All())
		h.mark(bad, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := written["bad"]; len(got) != 1 {
			t.Fatalf("written %d times after a failure, want once", len(got))
		}
		status := written["bad"][0]
		valid := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionValid)
		if valid == nil || valid.Reason != v1alpha1.ReasonInvalid || valid.Message != "no such function" ||
			status.Breaker == nil || status.Breaker.State != v1alpha1.BreakerOpen {
			t.Errorf("written is %+v", status)
		}
		h.mark(bad, true)
		time.Sleep(statusPause / 2)
		for range 3 {
			h.breakerChanged("ns", "bad", webhook.BreakerStatus{})
		}
		h.mark(store.Key{Namespace: "ns", Name: "gone"}, true)
		h.webhookChanged(store.Event{Type: store.Deleted, Key: store.Key{Namespace: "ns", Name: "bomb"}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(written) != 1 || len(written["bad"]) != 3 {
			t.Errorf("written are %d statuses, that of bad %d times, want 3", len(written), len(written["bad"]))
		}
		h.mark(store.Key{Namespace: "ns", Name: "bomb"}, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := written["bomb"]; len(got) != 1 ||
			!meta.IsStatusConditionTrue(got[0].Conditions, v1alpha1.ConditionQuarantined) {
			t.Errorf("written is %+v", got)
		}
		if !slices.Equal(witness.settled, witness.condemned) || !slices.Equal(quarantined, []string{"bomb"}) {
			t.Errorf("settled are %v, reported %v", witness.settled, quarantined)
		}
		if len(h.spaces) > 0 {
			t.Errorf("%d namespaces are kept", len(h.spaces))
		}
		cancel()
		<-done
	})
}

// TestQuarantine: a version of a Webhook is quarantined if the witness condemns it or if its status says so. No other
// version is.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	w := aWebhook("bomb", "2")
	q := newQuarantine(&accuser{condemned: []Condemned{{Revision: compiled.Revision(w), At: epoch}}},
		store.Of[v1alpha1.Webhook](webhookStore(t, w)))
	if !q.has(w) || !q.hasNamed("ns", "bomb") || q.hasNamed("ns", "other") {
		t.Error("not exactly the condemned Webhook is quarantined")
	}
	q.show(&w.Status, w)
	otherReplica := newQuarantine(nil, q.webhooks)
	if !otherReplica.has(w) || otherReplica.hasNamed("ns", "bomb") {
		t.Error("another replica ignores the status")
	}
	otherReplica.settle(w, func(Condemned) { t.Error("a replica without a witness reports the quarantine") })
	if otherReplica.show(&w.Status, w); !otherReplica.has(w) {
		t.Error("another replica removes the quarantine of the current version")
	}
	w.Generation = 2
	if q.has(w) || otherReplica.has(w) {
		t.Error("a changed Webhook is quarantined")
	}
	if q.show(&w.Status, w); len(w.Status.Conditions) > 0 {
		t.Errorf("conditions of a changed Webhook are %v", w.Status.Conditions)
	}
}
