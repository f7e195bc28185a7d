package executor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/effort"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// hookStatus writes the status of Webhooks: whether they compile, whether they are quarantined, and their circuit
// breaker. It runs apart from the flows of operations, with one write at a time for each namespace. Several changes
// of one Webhook become one write.
//
// It is safe for concurrent use. Its lock is a leaf lock, except for that of workers.
type hookStatus struct {
	hookStatusOptions
	writing chan struct{} // holds a token for each write under way
	workers *fair.Workers

	mu     sync.Mutex
	spaces map[string]*statusSpace
}

// hookStatusOptions are what a hookStatus needs from others.
type hookStatusOptions struct {
	own        *ownership
	releases   *releases
	quarantine *quarantine
	budget     *fair.Budget
	// compile waits until a Webhook is compiled.
	compile func(ctx context.Context, hook store.Key) (*webhook.Compiled, error)
	breaker func(namespace, name string) webhook.BreakerStatus
	// patch sends a merge patch of the status, and calls answered with the answer of the API server.
	patch func(ctx context.Context, hook store.Key, body []byte, answered func(raw []byte)) error
	// onQuarantined is called when the status of a Webhook that the witness has condemned is written.
	onQuarantined func(ctx context.Context, w *v1alpha1.Webhook, guilty Condemned)
	log           *slog.Logger
	now           func() time.Time
}

// statusSpace has the Webhooks of one namespace whose status may have to change. It exists while there are any.
type statusSpace struct {
	namespace string
	dirty     map[string]bool // by name; true: compile it again
}

// statusWriters bounds the concurrent writes of all namespaces together.
const statusWriters = 4

func newHookStatus(o hookStatusOptions) *hookStatus {
	return &hookStatus{
		hookStatusOptions: o, writing: make(chan struct{}, statusWriters), spaces: make(map[string]*statusSpace),
		workers: fair.NewWorkers(),
	}
}

// breakerChanged is called by the webhook client when a breaker changes. It does not block.
func (h *hookStatus) breakerChanged(namespace, name string, _ webhook.BreakerStatus) {
	h.mark(store.Key{Namespace: namespace, Name: name}, false)
}

// webhookChanged marks a Webhook after an event.
func (h *hookStatus) webhookChanged(event store.Event) {
	if event.Type == store.Added || event.Type == store.Modified {
		h.mark(event.Key, event.Prior == nil || event.Prior.Generation() != event.Object.Generation())
	}
}

// mark has the status of a Webhook checked. With compile, the Webhook is compiled again.
func (h *hookStatus) mark(key store.Key, compile bool) {
	if !h.own.holds(key.Namespace) {
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
	s.dirty[key.Name] = s.dirty[key.Name] || compile
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
		for name, compile := range taken {
			key := store.Key{Namespace: s.namespace, Name: name}
			stays, err := h.writeHere(key, compile)
			if err != nil && stays {
				h.log.WarnContext(ctx, "cannot write the status of a webhook", "webhook", key, "error", err)
				if !errors.Is(err, call.ErrTooLarge) { // then only a change of the Webhook helps
					h.mark(key, compile)
				}
			}
		}
		if backoff.Pause(ctx, statusPause) != nil {
			return
		}
	}
}

// writeHere calls write while the slot of the Webhook stays here. A write that has started may finish after that.
func (h *hookStatus) writeHere(key store.Key, compile bool) (stays bool, err error) {
	t, here := h.own.enter(key.Namespace)
	if !here {
		return false, nil
	}
	defer h.own.leave(key.Namespace)
	err = h.write(t.Stay, t.Context, key, compile)
	return t.Stay.Err() == nil, err
}

// write updates the status of a Webhook if it has changed. It waits only as long as ctx lasts. The request itself
// lasts as long as writing.
func (h *hookStatus) write(ctx, writing context.Context, key store.Key, compile bool) error {
	w, err := h.releases.webhooks.Get(key)
	if err != nil {
		return nil //nolint:nilerr // it was deleted
	}
	want := *w.Status.DeepCopy()
	if valid := meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionValid); compile || valid == nil ||
		valid.ObservedGeneration != w.Generation || h.disagrees(key, valid) {
		hook, invalid := h.compile(ctx, key)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(invalid, compiled.ErrNoWebhook):
			return nil
		}
		h.judge(w, &want, hook, invalid)
	}
	h.quarantine.show(&want, w)
	b := h.breaker(w.Namespace, w.Name)
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
	if err := h.budget.Wait(ctx, fair.Party{Group: key.Namespace}, paid, false); err != nil {
		return err
	}
	defer func() { h.budget.End(key.Namespace, paid, cost) }()
	select {
	case h.writing <- struct{}{}:
		defer func() { <-h.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err = h.patch(writing, key, body, func(raw []byte) { cost.Bytes = float64(effort.Of(raw)) })
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	h.quarantine.settle(w, func(guilty Condemned) { h.onQuarantined(writing, w, guilty) })
	return nil
}

// judge sets the condition Valid of a status, for a Webhook that is compiled or invalid.
func (h *hookStatus) judge(w *v1alpha1.Webhook, s *v1alpha1.WebhookStatus, hook *webhook.Compiled, invalid error) {
	s.ObservedGeneration = w.Generation
	valid := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCompiled,
		ObservedGeneration: w.Generation,
		LastTransitionTime: metav1.NewTime(h.now().Truncate(time.Second)),
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
	why, known := h.releases.withheld(key)
	return known && (why != nil) != (valid.Reason == v1alpha1.ReasonNotReleased) && valid.Reason != v1alpha1.ReasonInvalid
}

// withheld sets the condition if credentials are not released. While the release is not known, it keeps the present
// condition.
func (h *hookStatus) withheld(w *v1alpha1.Webhook, valid *metav1.Condition) {
	why, known := h.releases.withheld(store.Key{Namespace: w.Namespace, Name: w.Name})
	said := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionValid)
	switch {
	case why != nil:
		valid.Status, valid.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotReleased
		valid.Message = course.Tidy(why.Error())
	case !known && said != nil && said.Reason == v1alpha1.ReasonNotReleased:
		valid.Status, valid.Reason, valid.Message = said.Status, said.Reason, said.Message
	}
}

// recordedBreakers returns a function that reads the state of a breaker from the status of its Webhook.
func recordedBreakers(hooks store.View[v1alpha1.Webhook]) func(namespace, name string) webhook.BreakerStatus {
	return func(namespace, name string) webhook.BreakerStatus {
		w, err := hooks.Get(store.Key{Namespace: namespace, Name: name})
		if err != nil || w.Status.Breaker == nil {
			return webhook.BreakerStatus{}
		}
		b := webhook.BreakerStatus{State: webhook.BreakerState(w.Status.Breaker.State)}
		if until := w.Status.Breaker.Until; until != nil {
			b.Until = until.Time
		}
		return b
	}
}
