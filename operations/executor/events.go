package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Recorder records Kubernetes Events. [Events] is one.
type Recorder interface {
	// Operation records an event of an operation. It never blocks.
	Operation(op *v1alpha1.Operation, warning bool, reason, message string)
}

type noRecorder struct{}

func (noRecorder) Operation(*v1alpha1.Operation, bool, string, string) {}

const (
	// maxOutcomes and maxProgress bound the Events in the queues. Outcomes are written first, so a full queue of them
	// is written within about 40 s.
	maxOutcomes, maxProgress = 4096, 1024
	// eventWriters is the number of concurrent writes.
	eventWriters = 4
	// lastEvents is how long Close continues to write the queued Events.
	lastEvents = 2 * time.Second
)

// eventPolicy gives up an Event after some seconds.
var eventPolicy = call.Policy{Retries: 2, Timeout: 5 * time.Second}

// Events records Kubernetes Events in the background, best effort. It is a [Recorder].
//
// It writes at most 100 Events per second after a burst of 200, or as QPS and Burst of the configuration say.
// Terminal states and warnings are written first. The queue holds 4,096 of these and 1,024 others. Namespaces take
// turns, and an overflow drops an Event of the namespace with the longest queue. Equal Events become one: a queued
// Event counts its repetitions, and an existing one gets a new time.
//
// Events is a prometheus.Collector of fairlead_events_total, by result: written, failed or dropped. It is safe for
// concurrent use. Close it after use.
type Events struct {
	client  *client.Client
	limiter *connection.Limiter
	results *prometheus.CounterVec
	writers sync.WaitGroup
	ctx     context.Context //nolint:containedctx // of the writers; Close cancels it
	cancel  context.CancelFunc

	mu       sync.Mutex
	some     *sync.Cond
	outcomes fair.Queue[string, string] // names of waiting, by namespace
	progress fair.Queue[string, string]
	waiting  map[string]*corev1.Event // by namespace and name
	closed   bool
}

// NewEvents returns an Events that writes over the connection of calls. Its retries and failures do not count there.
func NewEvents(calls *call.Client) (*Events, error) {
	conn := calls.Connection()
	own, err := call.New(call.Options{Connection: conn})
	if err != nil {
		return nil, fmt.Errorf("cannot make an event recorder: %w", err)
	}
	writer, err := newClient(own, eventPolicy, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make an event recorder: %w", err)
	}
	e := &Events{
		client: writer, limiter: conn.Limiter(), waiting: make(map[string]*corev1.Event),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_events_total",
			Help: "Kubernetes Events of operations, by result: written, failed or dropped.",
		}, []string{"result"}),
	}
	e.some = sync.NewCond(&e.mu)
	e.ctx, e.cancel = context.WithCancel(context.Background())
	for range eventWriters {
		e.writers.Go(e.write)
	}
	return e, nil
}

// Operation implements Recorder.
func (e *Events) Operation(op *v1alpha1.Operation, warning bool, reason, message string) {
	severity := corev1.EventTypeNormal
	if warning {
		severity = corev1.EventTypeWarning
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", op.UID, severity, reason, message))
	name := strings.TrimRight(op.Name[:min(len(op.Name), 200)], "-.") + "." + hex.EncodeToString(sum[:8])
	now := metav1.Now()
	event := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: op.Namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindOperation, Namespace: op.Namespace, Name: op.Name,
			UID: op.UID, ResourceVersion: op.ResourceVersion,
		},
		Type: severity, Reason: reason, Message: message, Source: corev1.EventSource{Component: "fairlead"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	key := op.Namespace + "/" + name
	e.mu.Lock()
	defer e.mu.Unlock()
	if same := e.waiting[key]; same != nil {
		same.Count++
		same.LastTimestamp = now
		return
	}
	queue, most := &e.progress, maxProgress
	if warning || op.Terminal() {
		queue, most = &e.outcomes, maxOutcomes
	}
	if e.closed {
		e.results.WithLabelValues("dropped").Inc()
		return
	}
	if queue.Len() >= most {
		e.results.WithLabelValues("dropped").Inc()
		dropped := queue.MakeRoom(op.Namespace)
		if dropped == nil {
			return
		}
		delete(e.waiting, dropped.Value)
	}
	queue.Push(op.Namespace, key)
	e.waiting[key] = event
	e.some.Signal()
}

// next waits for an event to write. It returns nil when the recorder is closed and the queues are empty.
func (e *Events) next() *corev1.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.outcomes.Len()+e.progress.Len() == 0 {
		if e.closed {
			return nil
		}
		e.some.Wait()
	}
	queue := &e.outcomes
	if queue.Len() == 0 {
		queue = &e.progress
	}
	key := queue.Next(nil).Value
	event := e.waiting[key]
	delete(e.waiting, key)
	return event
}

func (e *Events) write() {
	for {
		_ = e.limiter.Wait(e.ctx, connection.Events, false) // after the context ends, queued events fail at once
		event := e.next()
		if event == nil {
			return
		}
		result := "written"
		if err := e.put(event); err != nil {
			result = "failed"
		}
		e.results.WithLabelValues(result).Inc()
	}
}

// put creates an event, or updates the time and count of an existing one.
func (e *Events) put(event *corev1.Event) error {
	err := e.client.Create(e.ctx, event)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch, err := json.Marshal(map[string]any{"lastTimestamp": event.LastTimestamp, "count": event.Count})
	if err != nil {
		return err
	}
	return e.client.Patch(e.ctx, event, client.RawPatch(types.MergePatchType, patch))
}

// Close stops recording. It writes the queued events for up to two seconds, and drops the rest.
func (e *Events) Close() {
	e.mu.Lock()
	e.closed = true
	e.some.Broadcast()
	e.mu.Unlock()
	late := time.AfterFunc(lastEvents, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.results.WithLabelValues("dropped").Add(float64(e.outcomes.Len() + e.progress.Len()))
		e.outcomes, e.progress = fair.Queue[string, string]{}, fair.Queue[string, string]{}
		e.cancel()
	})
	e.writers.Wait()
	late.Stop()
	e.cancel()
}

// Describe implements prometheus.Collector.
func (e *Events) Describe(ch chan<- *prometheus.Desc) { e.results.Describe(ch) }

// Collect implements prometheus.Collector.
func (e *Events) Collect(ch chan<- prometheus.Metric) { e.results.Collect(ch) }
