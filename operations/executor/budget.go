package executor

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// The names of the shares of a namespace, as messages show them.
const (
	sharePlaces = "calls under way"
	shareCalls  = "calls per second"
	shareWrites = "writes to the API server"
	// shareCompile is the share of calls that wait until a Webhook is compiled.
	shareCompile = "processor time, for its webhooks to be compiled"
	// shareMemory is the share of calls that wait because the Webhooks in use take too much memory together.
	shareMemory = "memory, for the webhooks of its calls"
)

// Budget bounds the use of each namespace over time. So no namespace fills etcd, or saturates the API server, the
// network or the processors, whatever its Webhooks do. Zero fields mean the defaults; negative fields mean no bound.
type Budget struct {
	// Writes to the API server per second, with a burst of ten seconds' worth. A write that records another try or a
	// poll counts as five. Default: 500.
	Writes int
	// WriteBytes is the size of written objects per second, with a burst of sixteen seconds' worth. etcd keeps every
	// version for five to ten minutes. An object with more than 512 values, or nested more than 16 levels deep, counts
	// as larger: the API server needs more time for it. Objects of 32 KiB or more are written one or two at a time,
	// over all namespaces, and no faster than TotalWriteBytes. Default: 1 MiB.
	WriteBytes int
	// TotalWrites and TotalWriteBytes bound all namespaces together that have used up half of their burst. These
	// namespaces get equal parts, so a user with many namespaces fills etcd no faster. Default: the writes of four
	// namespaces, and the bytes of two.
	TotalWrites, TotalWriteBytes int
	// Calls that start per second, tries and polls together, with a burst of four seconds' worth. Default: 500.
	Calls int
}

const (
	defaultWrites     = 500
	defaultWriteBytes = 1 << 20
	defaultCallRate   = 500
	// restWrites, restBytes and restCalls are the bursts, in seconds' worth of the rate.
	restWrites, restBytes, restCalls = 10, 16, 4
	// repetition is the price of a write that records a repeated try or a poll. No user has caused it by a write.
	repetition = 5
	// writesAbreast bounds the bytes of the writes under way of a namespace: above it the namespace starts no write.
	// Objects of usual size do not reach it. It also bounds the bytes under way of objects of at least largeObject,
	// over all namespaces.
	writesAbreast, largeObject = 256 << 10, 32 << 10
	// smallObject is the assumed growth of an object by its first write, in bytes.
	smallObject = 2 << 10
	// totalWrites and totalBytes are the number of namespaces that may use their full rate at the same time.
	totalWrites, totalBytes = 4, 2
	// unbounded is a rate that cannot be reached.
	unbounded = 1e15
)

// newBudgets returns the budgets of writes and of calls.
func newBudgets(b Budget, log *slog.Logger) (writes, calls *fair.Budget) {
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
			log.LogAttrs(context.Background(), slog.LevelWarn, "operations wait for the share of their namespace",
				slog.String("namespace", namespace), slog.String("share", what))
		}
	}
	w := fair.Price{Count: rate(b.Writes, defaultWrites), Bytes: rate(b.WriteBytes, defaultWriteBytes)}
	c := fair.Price{Count: rate(b.Calls, defaultCallRate), Bytes: unbounded}
	writes = fair.NewBudget(fair.BudgetOptions{
		Rate: w, Most: fair.Price{Count: w.Count * restWrites, Bytes: w.Bytes * restBytes},
		Total: fair.Price{
			Count: rate(b.TotalWrites, totalWrites*w.Count), Bytes: rate(b.TotalWriteBytes, totalBytes*w.Bytes),
		},
		Abreast: writesAbreast, Large: largeObject, Short: short(shareWrites),
	})
	calls = fair.NewBudget(fair.BudgetOptions{
		Rate: c, Most: fair.Price{Count: c.Count * restCalls, Bytes: c.Bytes}, Short: short(shareCalls),
	})
	return writes, calls
}

// shares is a prometheus.Collector of the use of the shares, by the name of the share.
type shares map[string]func() fair.Usage

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
	for of, use := range s {
		u := use()
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(u.Waiting), of)
		ch <- prometheus.MustNewConstMetric(namespacesDesc, prometheus.GaugeValue, float64(u.Groups), of)
		ch <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(u.Waits), of)
	}
}
