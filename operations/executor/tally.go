package executor

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/why"
)

// tally counts the stuck operations of one executor by their first cause. It is updated at each change of a cause. So
// collecting costs a constant for each type of cause, however many operations there are. Only while workers are
// blocked does it cost as much as there are operations behind them. It is a prometheus.Collector and safe for
// concurrent use. Its lock is a leaf lock.
type tally struct {
	// blocked returns the operations whose runs do not return from a step, and the ready operations behind them. The
	// tally does not know these, since a run updates it when it parks.
	blocked func() (at, behind []store.Key)

	mu     sync.Mutex
	stuck  map[store.Key]why.Type
	counts map[why.Type]int
}

// stuckBy are the values of the label cause: the types of causes that an operation in progress can have. Other types,
// which may come from a program that embeds an executor, are counted as Parked.
var stuckBy = [...]why.Type{
	why.Parked, why.LockHeld, why.WebhookMissing, why.NotReleased, why.Quarantined, why.CircuitOpen, why.RateLimited,
	why.RetryAfter, why.Forbidden, why.Conflict, why.BackOff, why.SourceStale, why.NotSelected, why.NotLeading, why.HeldBy,
	why.ForeignFinalizer, why.QueuedBehind, why.DeadlinePassed,
}

func newTally(blocked func() (at, behind []store.Key)) *tally {
	t := &tally{blocked: blocked, stuck: make(map[store.Key]why.Type), counts: make(map[why.Type]int, len(stuckBy))}
	for _, cause := range stuckBy {
		t.counts[cause] = 0
	}
	return t
}

// set records the cause by which an operation is stuck; empty: it is not stuck.
func (t *tally) set(key store.Key, cause why.Type) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, counted := t.counts[cause]; !counted && cause != "" {
		cause = why.Parked
	}
	was := t.stuck[key]
	if was == cause {
		return
	}
	if was != "" {
		t.counts[was]--
	}
	if cause == "" {
		delete(t.stuck, key)
		return
	}
	t.stuck[key] = cause
	t.counts[cause]++
}

// all returns the stuck operations with their causes.
func (t *tally) all() map[store.Key]why.Type {
	at, behind := t.blocked()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.stuck)
	t.eachBlocked(at, behind, func(key store.Key, cause why.Type) { all[key] = cause })
	return all
}

// eachBlocked calls f for the operations that blocked workers hold up and that set has not counted. The caller holds
// mu.
func (t *tally) eachBlocked(at, behind []store.Key, f func(store.Key, why.Type)) {
	for cause, keys := range map[why.Type][]store.Key{why.Parked: at, why.QueuedBehind: behind} {
		for _, key := range keys {
			if t.stuck[key] == "" {
				f(key, cause)
			}
		}
	}
}

// setFailing records the cause by which an operation is stuck after a failed request to the API server. With short, it
// waits for its namespace's share of writes.
func (t *tally) setFailing(key store.Key, failing *trouble, short bool) {
	var all []why.Cause
	if short {
		all = append(all, why.Cause{Type: why.RateLimited})
	}
	if failing != nil {
		all = append(all, failing.causes()...)
	}
	cause, _ := causes.Stuck(all)
	t.set(key, cause)
}

var stuckDesc = prometheus.NewDesc("fairlead_operations_stuck",
	"Operations of this process that are stuck, by their first cause.", []string{"cause"}, nil)

// Describe implements prometheus.Collector.
func (*tally) Describe(ch chan<- *prometheus.Desc) { ch <- stuckDesc }

// Collect implements prometheus.Collector.
func (t *tally) Collect(ch chan<- prometheus.Metric) {
	at, behind := t.blocked()
	t.mu.Lock()
	counts := maps.Clone(t.counts)
	t.eachBlocked(at, behind, func(_ store.Key, cause why.Type) { counts[cause]++ })
	t.mu.Unlock()
	for cause, n := range counts {
		ch <- prometheus.MustNewConstMetric(stuckDesc, prometheus.GaugeValue, float64(n), string(cause))
	}
}
