package executor

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/operations/internal/share"
)

// What namespaces have shares of.
const (
	sharePlaces = "calls under way"
	shareCalls  = "calls per second"
	shareWrites = "writes to the API server"
	// shareCompile is the share of those that wait for a Webhook to be compiled.
	shareCompile = "processor time, for its webhooks to be compiled"
	// shareMemory is the share of those that wait for others of which the Webhooks take too much memory together.
	shareMemory = "memory, for the webhooks of its calls"
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
func (e *Executor) newBudgets(b Budget) (writes, calls *share.Budget) {
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
	w := share.Price{Count: rate(b.Writes, defaultWrites), Bytes: rate(b.WriteBytes, defaultWriteBytes)}
	c := share.Price{Count: rate(b.Calls, defaultCallRate), Bytes: unbounded}
	writes = share.NewBudget(share.BudgetOptions{
		Rate: w, Most: share.Price{Count: w.Count * restWrites, Bytes: w.Bytes * restBytes},
		Total: share.Price{
			Count: rate(b.TotalWrites, totalWrites*w.Count), Bytes: rate(b.TotalWriteBytes, totalBytes*w.Bytes),
		},
		Abreast: writesAbreast, Large: largeObject, Short: short(shareWrites),
	})
	calls = share.NewBudget(share.BudgetOptions{
		Rate: c, Most: share.Price{Count: c.Count * restCalls, Bytes: c.Bytes}, Short: short(shareCalls),
	})
	return writes, calls
}

// shares is a prometheus.Collector of what namespaces share.
type shares struct{ e *Executor }

var (
	shareLabels = []string{"share"}
	waitingDesc = prometheus.NewDesc("fairlead_share_waiting",
		"Operations and calls that wait for the share of their namespace.", shareLabels, nil)
	namespacesDesc = prometheus.NewDesc("fairlead_share_namespaces_waiting",
		"Namespaces that have used up their share, and have operations that wait.", shareLabels, nil)
	waitsDesc = prometheus.NewDesc("fairlead_share_waits_total",
		"How often an operation had to wait for the share of its namespace.", shareLabels, nil)
)

// Describe implements prometheus.Collector.
func (s shares) Describe(ch chan<- *prometheus.Desc) {
	ch <- waitingDesc
	ch <- namespacesDesc
	ch <- waitsDesc
}

// Collect implements prometheus.Collector.
func (s shares) Collect(ch chan<- prometheus.Metric) {
	for of, use := range map[string]func() share.Usage{
		"places": s.e.slots.Usage, "calls": s.e.outside.Usage, "writes": s.e.writes.Usage,
	} {
		u := use()
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(u.Waiting), of)
		ch <- prometheus.MustNewConstMetric(namespacesDesc, prometheus.GaugeValue, float64(u.Namespaces), of)
		ch <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(u.Waits), of)
	}
}
