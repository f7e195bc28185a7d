package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
)

// Recorder writes Kubernetes Events (events.k8s.io/v1) about objects, which kubectl describe shows. Delivery is best
// effort: a lost event fails no reconciliation, and Event returns the error for the caller to log. A Recorder is safe
// for concurrent use and has no goroutine. Event sends its request once, and waits at most two seconds.
//
// Equal events (object, type, reason, note) share one Event with a count; its name is a hash of them. The Recorder
// writes a burst of at most 25 Events, and then one per second. Dropped counts the others.
type Recorder struct {
	c    *client.Client
	from string
	now  func() time.Time

	mu      sync.Mutex
	counts  map[string]int32 // by the namespace and name of the Event
	tokens  float64
	filled  time.Time
	dropped int
}

const (
	eventBurst     = 25
	eventsKept     = 1000
	maxEventNote   = 1024
	maxEventReason = 128
)

// NewRecorder returns a Recorder that writes in the name of a controller.
func NewRecorder(c *client.Client, controller string) *Recorder {
	return &Recorder{c: c, from: controller, now: time.Now, counts: map[string]int32{}, tokens: eventBurst}
}

// Event records an event about obj. kind is corev1.EventTypeNormal or EventTypeWarning, reason is one word in camel
// case, and note is a sentence. Callers may ignore the error.
func (r *Recorder) Event(ctx context.Context, obj client.Object, kind, reason, note string, args ...any) error {
	gvk, err := kindOf(r.c, obj)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		note = fmt.Sprintf(note, args...)
	}
	note, reason = truncate(note, maxEventNote), truncate(reason, maxEventReason)
	ns := obj.GetNamespace()
	if ns == "" {
		ns = metav1.NamespaceDefault
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%s", obj.GetUID(), r.from, kind, reason, note))
	name := truncate(obj.GetName(), 200) + "." + hex.EncodeToString(sum[:8])
	n, ok := r.allow(ns + "/" + name)
	if !ok {
		return nil
	}
	now := metav1.NewMicroTime(r.now())
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, EventTime: now,
		ReportingController: truncate("fairlead.io/"+r.from, 128), ReportingInstance: truncate(r.from, 128),
		Action: "Reconcile",
		Type:   kind, Reason: reason, Note: note,
		Regarding: corev1.ObjectReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		},
	}
	written, err := r.encodable(e)
	if err != nil {
		return err
	}
	// An event may be reported after the context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	once := client.WithPolicy(call.Policy{Retries: -1, Timeout: 2 * time.Second})
	if n == 1 {
		if err = r.c.Create(ctx, written, once); !apierrors.IsAlreadyExists(err) {
			return err
		}
		r.count(ns+"/"+name, 1) // written by an earlier process
		n = 2
	}
	patch, err := json.Marshal(map[string]any{"series": map[string]any{"count": n, "lastObservedTime": now}})
	if err != nil {
		return err
	}
	err = r.c.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch), once, client.Always())
	if apierrors.IsNotFound(err) { // it has expired
		written.SetResourceVersion("")
		return r.c.Create(ctx, written, once)
	}
	return err
}

// encodable returns an Event in a form that the client can write, even if the scheme does not know Events.
func (r *Recorder) encodable(e *eventsv1.Event) (client.Object, error) {
	kind := eventsv1.SchemeGroupVersion.WithKind("Event")
	if r.c.Scheme().Recognizes(kind) {
		return e, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// Dropped returns how many events were not written because of the rate limit.
func (r *Recorder) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// allow counts an event and reports whether it may be written.
func (r *Recorder) allow(name string) (n int32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if !r.filled.IsZero() {
		r.tokens = min(eventBurst, r.tokens+now.Sub(r.filled).Seconds())
	}
	r.filled = now
	if len(r.counts) >= eventsKept && r.counts[name] == 0 {
		for k := range r.counts { // any entry may go: Event finds the existing Event by its name
			delete(r.counts, k)
			break
		}
	}
	r.counts[name]++
	if r.tokens < 1 {
		r.dropped++
		return 0, false
	}
	r.tokens--
	return r.counts[name], true
}

func (r *Recorder) count(name string, more int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[name] += more
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 { // do not cut a rune
		n--
	}
	return s[:n]
}
