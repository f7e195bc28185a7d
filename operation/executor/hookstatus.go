package executor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// hookStatus writes what is known of the Webhooks into their status: whether they can be compiled, and their breaker. It works off the path
// of operations, one write at a time; several changes of one Webhook become one write.
type hookStatus struct {
	e     *Executor
	mu    sync.Mutex
	dirty map[store.Key]struct{}
	some  chan struct{} // holds a token while dirty may have something
}

func newHookStatus(e *Executor) *hookStatus {
	return &hookStatus{e: e, dirty: make(map[store.Key]struct{}), some: make(chan struct{}, 1)}
}

// breakerChanged is told by the webhook client. It does not block.
func (h *hookStatus) breakerChanged(namespace, name string, _ webhook.BreakerStatus) {
	h.mark(store.Key{Namespace: namespace, Name: name})
}

func (h *hookStatus) webhookChanged(event store.Event) {
	if event.Type == store.Added || event.Type == store.Modified {
		h.mark(event.Key)
	}
}

func (h *hookStatus) mark(key store.Key) {
	h.mu.Lock()
	h.dirty[key] = struct{}{}
	h.mu.Unlock()
	select {
	case h.some <- struct{}{}:
	default:
	}
}

func (h *hookStatus) take() map[store.Key]struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.dirty
	h.dirty = make(map[store.Key]struct{})
	return taken
}

// statusPause bounds the writes to two rounds per second, however often a breaker changes.
const statusPause = 500 * time.Millisecond

// run writes until the context ends.
func (h *hookStatus) run(ctx context.Context) {
	for {
		select {
		case <-h.some:
		case <-ctx.Done():
			return
		}
		for key := range h.take() {
			if err := h.write(ctx, key); err != nil && ctx.Err() == nil {
				h.e.log.WarnContext(ctx, "cannot write the status of a webhook", "webhook", key, "error", err)
				if !errors.Is(err, call.ErrTooLarge) { // then only another Webhook can do better
					h.mark(key)
				}
			}
		}
		select {
		case <-time.After(statusPause):
		case <-ctx.Done():
			return
		}
	}
}

// write brings the status of a Webhook up to date, if it is not.
func (h *hookStatus) write(ctx context.Context, key store.Key) error {
	w, err := h.e.hooks.webhooks.Get(key)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	want := h.status(w)
	if equality.Semantic.DeepEqual(want, w.Status) {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.UID}, "status": map[string]any{
		"conditions": want.Conditions, "observedGeneration": want.ObservedGeneration,
		"breaker": map[string]any{"state": want.Breaker.State, "until": want.Breaker.Until}, // null removes it
	}})
	if err != nil {
		return err
	}
	_, err = call.Do(ctx, h.e.calls, call.Request{
		Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook,
		Namespace: key.Namespace, Name: key.Name, Subresource: "status", Body: body, NotFoundOK: true,
	}, h.e.policy)
	if err == nil {
		h.e.tellWitness(ctx, w)
	}
	return err
}

// status is what the status of a Webhook should be.
func (h *hookStatus) status(w *v1alpha1.Webhook) v1alpha1.WebhookStatus {
	s := *w.Status.DeepCopy()
	s.ObservedGeneration = w.Generation
	valid := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCompiled, ObservedGeneration: w.Generation,
		LastTransitionTime: metav1.NewTime(h.e.now().Truncate(time.Second)),
	}
	h.e.quarantine(&s, w)
	hook, err := h.e.hooks.get(w.Namespace, w.Name)
	switch {
	case h.e.quarantined(w):
		valid.Status, valid.Reason, valid.Message = metav1.ConditionUnknown, v1alpha1.ReasonCrashed, errQuarantined.Error()
	case err != nil && !errors.Is(err, errNoWebhook):
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, v1alpha1.ReasonInvalid, tidy(err.Error())
	case err == nil:
		valid.Message = tidy(strings.Join(hook.Warnings(), "; "))
	}
	meta.SetStatusCondition(&s.Conditions, valid)
	b := h.e.webhooks.Breaker(w.Namespace, w.Name)
	s.Breaker = &v1alpha1.BreakerStatus{State: v1alpha1.BreakerState(b.State)}
	if !b.Until.IsZero() {
		s.Breaker.Until = micro(b.Until)
	}
	return s
}
