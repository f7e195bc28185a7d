package executor

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/writeoption"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/effort"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// hookStatus writes the status of Webhooks: whether they compile, whether they are quarantined, and their circuit
// breaker. It runs apart from the flows of operations, with one write at a time for each namespace. Several changes
// of one Webhook become one write.
type hookStatus struct {
	e       *Executor
	writing chan struct{} // holds a token for each write under way
	workers *fair.Workers
	mu      sync.Mutex
	spaces  map[string]*statusSpace
}

// statusSpace has the Webhooks of one namespace whose status may have to change. It exists while there are any.
type statusSpace struct {
	namespace string
	dirty     map[string]bool // by name; true: compile it again
}

// statusWriters bounds the concurrent writes of all namespaces together.
const statusWriters = 4

func newHookStatus(e *Executor) *hookStatus {
	return &hookStatus{
		e: e, writing: make(chan struct{}, statusWriters), spaces: make(map[string]*statusSpace), workers: fair.NewWorkers(),
	}
}

// breakerChanged is called by the webhook client when a breaker changes. It does not block.
func (h *hookStatus) breakerChanged(namespace, name string, _ webhook.BreakerStatus) {
	h.mark(store.Key{Namespace: namespace, Name: name}, false)
}

func (h *hookStatus) webhookChanged(event store.Event) {
	if event.Type == store.Added || event.Type == store.Modified {
		h.mark(event.Key, event.Prior == nil || event.Prior.Generation() != event.Object.Generation())
	}
}

func (h *hookStatus) mark(key store.Key, anew bool) {
	if !h.e.holds(key.Namespace) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.spaces[key.Namespace]
	if s == nil {
		s = &statusSpace{namespace: key.Namespace, dirty: make(map[string]bool)}
		h.spaces[key.Namespace] = s
		h.workers.Add(func(ctx context.Context) { h.work(ctx, s) })
	}
	s.dirty[key.Name] = s.dirty[key.Name] || anew
}

// take returns the Webhooks of a namespace to work on. If there are none, it removes s, and the work of the namespace
// ends.
func (h *hookStatus) take(s *statusSpace) map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := s.dirty
	if s.dirty = make(map[string]bool); len(taken) == 0 {
		delete(h.spaces, s.namespace)
	}
	return taken
}

// statusPause bounds the writes of a namespace to two rounds per second, however often a breaker changes.
const statusPause = 500 * time.Millisecond

// run writes until the context ends.
func (h *hookStatus) run(ctx context.Context) { h.workers.Run(ctx) }

// work writes the statuses of the Webhooks of one namespace until none is left.
func (h *hookStatus) work(ctx context.Context, s *statusSpace) {
	for {
		taken := h.take(s)
		if len(taken) == 0 {
			return
		}
		for name, anew := range taken {
			key := store.Key{Namespace: s.namespace, Name: name}
			stays, err := h.writeHere(key, anew)
			if err != nil && stays {
				h.e.log.WarnContext(ctx, "cannot write the status of a webhook", "webhook", key, "error", err)
				if !errors.Is(err, call.ErrTooLarge) { // then only a change of the Webhook helps
					h.mark(key, anew)
				}
			}
		}
		if backoff.Pause(ctx, statusPause) != nil {
			return
		}
	}
}

// writeHere calls write while the slot of the Webhook stays here. A write that has started may finish after that.
func (h *hookStatus) writeHere(key store.Key, anew bool) (stays bool, err error) {
	slot := h.e.slotOf(key.Namespace)
	t, here := h.e.tenures.Enter(slot)
	if !here {
		return false, nil
	}
	defer h.e.tenures.Leave(slot)
	err = h.write(t.Stay, t.Context, key, anew)
	return t.Stay.Err() == nil, err
}

// write updates the status of a Webhook if it has changed. It waits only as long as ctx lasts. The request itself
// lasts as long as writing.
func (h *hookStatus) write(ctx, writing context.Context, key store.Key, anew bool) error {
	w, err := h.e.releases.webhooks.Get(key)
	if err != nil {
		return nil //nolint:nilerr // it was deleted
	}
	want := *w.Status.DeepCopy()
	if valid := meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionValid); anew || valid == nil ||
		valid.ObservedGeneration != w.Generation || h.disagrees(key, valid) {
		hook, invalid := h.e.hooks.Await(ctx, key)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(invalid, compiled.ErrNoWebhook):
			return nil
		}
		h.judge(w, &want, hook, invalid)
	}
	h.e.quarantine(&want, w)
	b := h.e.webhooks.Breaker(w.Namespace, w.Name)
	want.Breaker = &v1alpha1.BreakerStatus{State: v1alpha1.BreakerState(b.State)}
	if !b.Until.IsZero() {
		want.Breaker.Until = course.Micro(b.Until)
	}
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
	paid := fair.Price{Count: 1, Bytes: smallObject}
	cost := paid
	if err := h.e.writes.Wait(ctx, fair.Party{Group: key.Namespace}, paid, false); err != nil {
		return err
	}
	defer func() { h.e.writes.End(key.Namespace, paid, cost) }()
	select {
	case h.writing <- struct{}{}:
		defer func() { <-h.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	own := &v1alpha1.Webhook{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = h.e.clientOf(key.Namespace, store.WriteContext{}).Status().Patch(writing, own, client.RawPatch(types.MergePatchType, body), client.Always(),
		writeoption.Answered(func(raw []byte) { cost.Bytes = float64(effort.Of(raw)) }))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	h.e.tellWitness(writing, w)
	return nil
}

// judge sets the condition Valid of a status, for a Webhook that is compiled or invalid.
func (h *hookStatus) judge(w *v1alpha1.Webhook, s *v1alpha1.WebhookStatus, hook *webhook.Compiled, invalid error) {
	s.ObservedGeneration = w.Generation
	valid := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCompiled,
		ObservedGeneration: w.Generation,
		LastTransitionTime: metav1.NewTime(h.e.now().Truncate(time.Second)),
	}
	switch {
	case errors.Is(invalid, errQuarantined):
		valid.Status, valid.Reason, valid.Message = metav1.ConditionUnknown, v1alpha1.ReasonCrashed, errQuarantined.Error()
	case invalid != nil:
		valid.Status, valid.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalid
		valid.Message = course.Tidy(invalid.Error())
	default:
		valid.Message = course.Tidy(strings.Join(hook.Warnings(), "; "))
		h.withheld(w, &valid)
	}
	meta.SetStatusCondition(&s.Conditions, valid)
}

// disagrees reports whether a condition contradicts the known release of the credentials of a Webhook.
func (h *hookStatus) disagrees(key store.Key, valid *metav1.Condition) bool {
	why, known := h.e.releases.withheld(key)
	return known && (why != nil) != (valid.Reason == v1alpha1.ReasonNotReleased) && valid.Reason != v1alpha1.ReasonInvalid
}

// withheld sets the condition if credentials are not released. While the release is not known, it keeps the present
// condition.
func (h *hookStatus) withheld(w *v1alpha1.Webhook, valid *metav1.Condition) {
	why, known := h.e.releases.withheld(store.Key{Namespace: w.Namespace, Name: w.Name})
	said := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionValid)
	switch {
	case why != nil:
		valid.Status, valid.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotReleased
		valid.Message = course.Tidy(why.Error())
	case !known && said != nil && said.Reason == v1alpha1.ReasonNotReleased:
		valid.Status, valid.Reason, valid.Message = said.Status, said.Reason, said.Message
	}
}
