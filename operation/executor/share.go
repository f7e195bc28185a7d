package executor

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
)

// Budget is what the operations of each namespace may use over time, so that none of them fills etcd or keeps the API
// server, the network or the processors busy, however its Webhooks are made. Zero fields mean the defaults, negative
// ones no bound.
type Budget struct {
	// Writes to the API server per second; after a rest ten seconds' worth at once. One that records another try, or a
	// poll, counts as five. Default: 500.
	Writes int
	// WriteBytes are those of the objects that are written, per second; after a rest sixteen seconds' worth at once. etcd
	// keeps every version for five to ten minutes. One of more than 512 values, or nested more than 16 deep, counts as
	// longer than it is, as it takes the API server longer. Large ones, of 32 KiB, are written one or two at a time of all
	// namespaces together, and no faster than TotalWriteBytes. Default: 1 MiB.
	WriteBytes int
	// TotalWrites and TotalWriteBytes are those of all namespaces together that have used up half of what a rest brings,
	// in equal parts, so that who has many namespaces fills etcd no faster. Default: the writes of four namespaces, and
	// the bytes of two.
	TotalWrites, TotalWriteBytes int
	// Calls that are started per second, tries and polls together; after a rest four seconds' worth at once. Default: 500.
	Calls int
}

const (
	defaultWrites     = 500
	defaultWriteBytes = 1 << 20
	defaultCallRate   = 500
	// restWrites, restBytes and restCalls are how many seconds' worth may be used at once after a rest.
	restWrites, restBytes, restCalls = 10, 16, 4
	// repetition is the price of a write that only repeats: nobody has asked for it by a write of his own.
	repetition = 5
	// writesAbreast are the bytes under way with which a namespace begins no more writes: those of objects of usual size
	// never are. While those of objects of at least largeObject are that many, of all namespaces, none of them is written.
	writesAbreast, largeObject = 256 << 10, 32 << 10
	// smallObject is what one is taken to have more, in bytes, than before it was written first.
	smallObject = 2 << 10
	// totalWrites and totalBytes are how many namespaces may use all of theirs at a time.
	totalWrites, totalBytes = 4, 2
	// unbounded is more than anybody can use.
	unbounded = 1e15
)

// newBudgets returns those of writes and of calls.
func (e *Executor) newBudgets(b Budget) (writes, calls *budget) {
	rate := func(n int, otherwise float64) float64 {
		switch {
		case n == 0:
			return otherwise
		case n < 0:
			return unbounded
		}
		return float64(n)
	}
	short := func(what string) func(string) {
		return func(namespace string) {
			e.log.LogAttrs(context.Background(), slog.LevelWarn, "operations wait for the share of their namespace",
				slog.String("namespace", namespace), slog.String("share", what))
		}
	}
	w := price{rate(b.Writes, defaultWrites), rate(b.WriteBytes, defaultWriteBytes)}
	c := price{rate(b.Calls, defaultCallRate), unbounded}
	writes = newBudget(w, price{w.count * restWrites, w.bytes * restBytes}, short(shareWrites))
	writes.abreast, writes.large = writesAbreast, largeObject
	writes.total = price{rate(b.TotalWrites, totalWrites*w.count), rate(b.TotalWriteBytes, totalBytes*w.bytes)}
	calls = newBudget(c, price{c.count * restCalls, c.bytes}, short(shareCalls))
	return writes, calls
}

// errShort says that a write has to wait for the share of its namespace. The run is woken when it is its turn.
var errShort = errors.New("the namespace has used up its share of writes to the API server")

// pay spends what the next write of a run costs, unless that is done. If it returns false, the run is woken when it is
// its turn. The ends of operations come first. What calls have brought is written at once when the executor is about to
// end.
func (e *Executor) pay(r *run) bool {
	if r.paid.count > 0 {
		return true
	}
	cost, urgent := price{1, e.size(r)}, r.op.Terminal() || r.op.DeletionTimestamp != nil
	if !urgent && repeats(&r.op.Status) {
		cost.count = repetition
	}
	if e.draining() {
		e.unpay(r)
		e.writes.take(r.key.Namespace, cost)
		r.paid = cost
		return true
	}
	paid, ok := e.writes.acquire(r.party(), r, cost, urgent, r.news.Set)
	r.paid, r.short = paid, r.short || !ok
	return ok
}

// size is what the next write of a run is taken to cost, in bytes: what the last one did, or what the store has.
func (e *Executor) size(r *run) float64 {
	if r.size > 0 {
		return float64(r.size)
	}
	if known, ok := e.store.Get(r.key); ok {
		return float64(smallObject + effort(known.AppendRaw(nil)))
	}
	return smallObject
}

// repeats tells whether a call of an operation is being repeated.
func repeats(s *v1alpha1.OperationStatus) bool {
	again := func(e *v1alpha1.WebhookCallStatus) bool {
		return !e.State.Terminal() && (e.RetriesCount > 0 || e.LastPollTimestamp != nil || e.AttemptID != "" && e.NextAttemptAt != nil)
	}
	for i := range s.Webhooks {
		if again(&s.Webhooks[i]) {
			return true
		}
	}
	for i := range s.Compensations {
		if again(&s.Compensations[i]) {
			return true
		}
	}
	return s.Notification != nil && again(s.Notification)
}

// settlePaid corrects what was paid for a write by what the answer costs, in bytes; 0: there was none.
func (e *Executor) settlePaid(r *run, size int, err error) {
	bytes := r.paid.bytes
	switch {
	case size > 0:
		r.size = int32(min(size, 1<<30))
		bytes = float64(r.size)
	case apierrors.IsConflict(err):
		bytes = 0
	}
	e.writes.end(r.key.Namespace, r.paid, price{r.paid.count, bytes})
	r.paid, r.short = price{}, false
}

// unpay gives back what was paid for a write that is not made, or gives up waiting for it.
func (e *Executor) unpay(r *run) {
	e.writes.withdraw(r.party(), r)
	e.writes.end(r.key.Namespace, r.paid, price{})
	r.paid = price{}
}

// shares is a prometheus.Collector of what namespaces share.
type shares struct{ e *Executor }

var (
	shareLabels    = []string{"share"}
	waitingDesc    = prometheus.NewDesc("fairlead_share_waiting", "Operations and calls that wait for the share of their namespace.", shareLabels, nil)
	namespacesDesc = prometheus.NewDesc("fairlead_share_namespaces_waiting", "Namespaces that have used up their share, and have operations that wait.", shareLabels, nil)
	waitsDesc      = prometheus.NewDesc("fairlead_share_waits_total", "How often an operation had to wait for the share of its namespace.", shareLabels, nil)
)

// Describe implements prometheus.Collector.
func (s shares) Describe(ch chan<- *prometheus.Desc) {
	ch <- waitingDesc
	ch <- namespacesDesc
	ch <- waitsDesc
}

// Collect implements prometheus.Collector.
func (s shares) Collect(ch chan<- prometheus.Metric) {
	for share, use := range map[string]func() usage{"places": s.e.slots.usage, "calls": s.e.outside.usage, "writes": s.e.writes.usage} {
		u := use()
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(u.waiting), share)
		ch <- prometheus.MustNewConstMetric(namespacesDesc, prometheus.GaugeValue, float64(u.namespaces), share)
		ch <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(u.waits), share)
	}
}

// usage is who waits for a share, of how many namespaces, and how often somebody had to.
type usage struct{ waiting, namespaces, waits int }
