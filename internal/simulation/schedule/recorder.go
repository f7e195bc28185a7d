package schedule

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

// objectKey identifies an object.
type objectKey struct {
	resource        schema.GroupResource
	namespace, name string
}

// recorder keeps the present objects and the trace. The driver reports each change to it, and each transport each
// write. It is safe for concurrent use.
type recorder struct {
	start      time.Time
	concurrent bool // other changes may happen while a write is in progress

	mu      sync.Mutex
	normal  *engine.Normalizer
	faults  *injector
	objects map[objectKey]*unstructured.Unstructured
	hashes  map[objectKey]string // of normalized content
	values  engine.Values        // nil: not recorded, nor are keys
	keys    engine.Keys
	varying engine.Varying
	trace   []engine.Event
	numbers map[engine.Moment]int // writes of the subject, without their number
	writing int                   // index in trace of the write in progress; -1: none
	changed chan struct{}         // closed at the next change

	last     time.Time              // of the last change that counts
	counts   map[string]int         // changes that count since the last restart, by object
	most     int                    // the largest of them
	requests map[string][]time.Time // of the subject, in the last minute
	watched  map[string]bool
	leads    bool
	broken   []engine.Broken
}

// newRecorder returns a recorder of a run of the plan. A reference has the texts of all fields in its report.
func newRecorder(faults *injector, p engine.Plan, reference bool) *recorder {
	now := time.Now()
	r := &recorder{
		start: now, last: now, normal: engine.NewNormalizer(p.Names), faults: faults,
		objects: map[objectKey]*unstructured.Unstructured{}, hashes: map[objectKey]string{}, numbers: map[engine.Moment]int{},
		counts:  map[string]int{},
		writing: -1, changed: make(chan struct{}), requests: map[string][]time.Time{}, watched: map[string]bool{},
		varying: engine.NewVarying(p.Varies),
	}
	if reference {
		r.values, r.keys = engine.Values{}, engine.Keys{}
	}
	return r
}

// onChange takes a change, before any watch of the subject shows it.
func (r *recorder) onChange(c apiserver.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	obj := c.New
	if obj == nil {
		obj = c.Old
	}
	k := objectKey{c.Resource.GVR().GroupResource(), obj.GetNamespace(), obj.GetName()}
	if c.New == nil {
		delete(r.objects, k)
	} else {
		r.objects[k] = c.New
	}
	close(r.changed)
	r.changed = make(chan struct{})
	if isLock(k.resource, obj) || isEvent(k.resource) {
		return
	}
	r.normal.Learn(k.resource, obj)
	var before, after map[string]any
	if c.Old != nil {
		before = r.normal.Object(c.Old)
	}
	if c.New != nil {
		after = r.normal.Object(c.New)
	}
	if engine.Hash(before) == engine.Hash(after) {
		return // only what the server assigns, or a time
	}
	object := r.normal.Ref(k.resource, k.namespace, k.name)
	m := engine.Moment{
		Verb: engine.Change, Object: object, From: r.varying.Hash(object, before), To: r.varying.Hash(object, after),
	}
	if r.values != nil {
		r.values.Add(object, after)
		r.keys.Add(object, after)
	}
	r.last = time.Now()
	r.counts[m.Object]++
	r.most = max(r.most, r.counts[m.Object])
	e := r.event(m.Object)
	e.Changed, e.Diff = m, engine.Summary(before, after, 3)
	if text := r.faults.change(m, obj.GetResourceVersion()); text != "" {
		e.Fault = text
	}
}

// event returns the event of the write in progress, if that has no change yet and may have led to this one, or a new
// event.
func (r *recorder) event(object string) *engine.Event {
	actor := engine.Cluster
	if r.writing >= 0 {
		switch w := &r.trace[r.writing]; {
		case r.concurrent && w.Write.Object != object:
		case w.Changed == (engine.Moment{}):
			return w
		default:
			actor = w.Actor
		}
	}
	r.trace = append(r.trace, engine.Event{At: time.Since(r.start), Actor: actor})
	return &r.trace[len(r.trace)-1]
}

// ref returns the canonical reference of the object of a request.
func (r *recorder) ref(q request, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.normal.Ref(q.resource, q.namespace, name)
}

// moment numbers a write of the subject.
func (r *recorder) moment(q request, name string) engine.Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := engine.Moment{
		Verb: q.verb, Object: r.normal.Ref(q.resource, q.namespace, name), Subresource: q.subresource,
	}
	r.numbers[m]++
	m.N = r.numbers[m]
	return m
}

// begin records that a write is being sent. There is one at a time.
func (r *recorder) begin(actor string, m engine.Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = len(r.trace)
	r.trace = append(r.trace, engine.Event{At: time.Since(r.start), Actor: actor, Write: m})
}

// end records the answer to the write in progress, why it is refused, and a fault that follows it.
func (r *recorder) end(status int, reason, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &r.trace[r.writing]
	e.Status, e.Reason = status, reason
	if fault != "" {
		e.Fault = fault
	}
	r.writing = -1
}

// note adds an event without a write, such as a restart.
func (r *recorder) note(actor, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, engine.Event{At: time.Since(r.start), Actor: actor, Fault: text})
}

// mark marks a fault at a write, before it is sent.
func (r *recorder) mark(actor string, m engine.Moment, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, engine.Event{At: time.Since(r.start), Actor: actor, Write: m, Fault: text})
}

// remembered is how long requests are remembered. No window is longer.
const remembered = time.Minute

// request counts a request of the subject that is neither a watch nor about a lock.
func (r *recorder) request(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, times := time.Now(), r.requests[text]
	old, _ := slices.BinarySearchFunc(times, now.Add(-remembered), time.Time.Compare)
	r.requests[text] = append(times[old:], now)
}

// watch records that the subject watches a kind.
func (r *recorder) watch(res schema.GroupResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched[res.String()] = true
}

// lock records that the subject writes a lock of leader election.
func (r *recorder) lock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads = true
}

// busy returns the requests that the subject has made more than once a second in the last window.
func (r *recorder) busy(window time.Duration) []engine.Repeat {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Now().Add(-window)
	var out []engine.Repeat
	for text, times := range r.requests {
		i, _ := slices.BinarySearchFunc(times, since, time.Time.Compare)
		if n := len(times) - i; n > int(window/time.Second) {
			out = append(out, engine.Repeat{Request: text, Times: n, Within: window})
		}
	}
	slices.SortFunc(out, func(a, b engine.Repeat) int { return strings.Compare(a.Request, b.Request) })
	return out
}

// report adds to the outcome what has been recorded beside the objects.
func (r *recorder) report(out *engine.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Reached, out.Trace, out.Broken = r.faults.reached, slices.Clone(r.trace), slices.Clone(r.broken)
	out.Values, out.Keys = r.values, r.keys
	out.Watched, out.Leads = slices.Sorted(maps.Keys(r.watched)), r.leads
}

// forget drops the trace so far.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = nil
}

// quietSince returns the time of the last change that counts, or the end of the last fault if that is later, also if it
// is in the future. It also returns the largest number of changes of one object since restart.
func (r *recorder) quietSince() (time.Time, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults.until.After(r.last) {
		return r.faults.until, r.most
	}
	return r.last, r.most
}

// restart begins to count changes anew.
func (r *recorder) restart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most, r.last = 0, time.Now()
	clear(r.counts)
}

// next returns a channel that is closed at the next change.
func (r *recorder) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// object returns a copy of an object, or nil.
func (r *recorder) object(k objectKey) *unstructured.Unstructured {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.objects[k]; o != nil {
		return o.DeepCopy()
	}
	return nil
}

// list returns copies of the objects of a resource, by namespace and name.
func (r *recorder) list(res schema.GroupResource) []*unstructured.Unstructured {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*unstructured.Unstructured
	for k, o := range r.objects {
		if k.resource == res {
			out = append(out, o.DeepCopy())
		}
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

// state returns all objects that count, normalized.
func (r *recorder) state() engine.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := engine.State{}
	keys := slices.SortedFunc(maps.Keys(r.objects),
		func(a, b objectKey) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range keys {
		o := r.objects[k]
		if isLock(k.resource, o) || isEvent(k.resource) {
			continue
		}
		ref := r.normal.Ref(k.resource, k.namespace, k.name)
		out[ref] = append(out[ref], r.normal.Object(o))
	}
	for _, same := range out {
		slices.SortFunc(same, func(a, b map[string]any) int { return strings.Compare(engine.Hash(a), engine.Hash(b)) })
	}
	return out
}

// isLock reports a lock of leader election.
func isLock(res schema.GroupResource, o *unstructured.Unstructured) bool {
	switch res.String() {
	case "leases.coordination.k8s.io":
		return true
	case "configmaps", "endpoints":
		return o.GetAnnotations()[LeaderAnnotation] != ""
	}
	return false
}

// locks reports whether a write is to a lock of leader election.
func (r *recorder) locks(q request, body []byte) bool {
	switch q.resource.String() {
	case "leases.coordination.k8s.io":
		return true
	case "configmaps", "endpoints":
		if bytes.Contains(body, []byte(LeaderAnnotation)) { // as JSON, protobuf or CBOR
			return true
		}
		o := r.object(objectKey{q.resource, q.namespace, q.nameIn(body)})
		return o != nil && isLock(q.resource, o)
	}
	return false
}

func isEvent(res schema.GroupResource) bool {
	return res.Resource == "events" && (res.Group == "" || res.Group == "events.k8s.io")
}

// violated records a violated invariant.
func (r *recorder) violated(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, engine.Broken{At: time.Since(r.start), Reason: reason})
	r.trace = append(r.trace, engine.Event{At: time.Since(r.start), Actor: engine.Invariant, Fault: reason})
}
