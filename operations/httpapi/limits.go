package httpapi

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// Bounds of concurrent and waiting requests.
const (
	defaultInFlight  = 64
	defaultStreams   = 1024
	defaultCallbacks = 64

	requestsWait, callbacksWait = 256, 256 // of one namespace
	maxWait                     = 5 * time.Second
)

// limit bounds the number of concurrent requests of one sort. Its slots are shared by namespace and then by caller. The
// Semaphore has the lock.
type limit struct {
	name    string // in metrics
	plural  string // in problems
	advice  string
	after   int // Retry-After of a refusal, in seconds
	slots   *fair.Semaphore
	refused *prometheus.CounterVec
}

// enter takes a slot; the caller must call leave afterwards. The error is meant for the client.
func (l *limit) enter(ctx context.Context, party fair.Party) (leave func(), err error) {
	leave, err = l.slots.Acquire(ctx, party)
	var busy *fair.BusyError
	if !errors.As(err, &busy) {
		return leave, err
	}
	p := &Problem{Status: http.StatusTooManyRequests, Title: "Too many " + l.plural, after: l.after}
	scope := busy.Scope
	switch scope {
	case fair.ScopeMember:
		p.Detail, scope = "this caller has as many at a time as it may have", "caller"
	case fair.ScopeGroup:
		p.Detail, scope = "this namespace has as many at a time as it may have", "namespace"
	default:
		p.Status, p.Detail = http.StatusServiceUnavailable, "this server has as many at a time as it can"
	}
	p.Detail += ": " + l.advice
	l.refused.WithLabelValues(l.name, scope).Inc()
	return nil, p
}

// limits creates the limits of a handler and collects their metrics.
type limits struct {
	requests, streams, callbacks *limit
	pages                        *limit // CPU-bound, so at most one per processor
	refused                      *prometheus.CounterVec
}

func newLimits(o Options) *limits {
	l := &limits{refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_http_refused_total",
		Help: "Rejected requests to the HTTP API, by limit and by caller or total.",
	}, []string{"limit", "scope"})}
	of := func(name, plural string, slots *fair.Semaphore) *limit {
		return &limit{
			name: name, plural: plural, advice: "try again later", after: 1, slots: slots, refused: l.refused,
		}
	}
	l.requests = of("requests", "requests",
		&fair.Semaphore{Slots: o.MaxInFlight, Waiting: requestsWait, Wait: maxWait})
	l.streams = of("streams", "event streams", &fair.Semaphore{Slots: o.MaxStreams})
	l.streams.advice, l.streams.after = "try again later, or poll with GET", 5
	l.callbacks = of("callbacks", "callbacks",
		&fair.Semaphore{Slots: o.MaxCallbacks, Waiting: callbacksWait, Wait: maxWait})
	l.pages = of("pages", "pages",
		&fair.Semaphore{Slots: max(1, runtime.GOMAXPROCS(0)-1), Waiting: requestsWait, Wait: maxWait})
	return l
}

var inFlight = prometheus.NewDesc("fairlead_http_in_flight", "Requests in progress, by limit.", []string{"limit"}, nil)

// Describe implements prometheus.Collector.
func (l *limits) Describe(ch chan<- *prometheus.Desc) { l.refused.Describe(ch); ch <- inFlight }

// Collect implements prometheus.Collector.
func (l *limits) Collect(ch chan<- prometheus.Metric) {
	l.refused.Collect(ch)
	for _, one := range []*limit{l.requests, l.streams, l.callbacks, l.pages} {
		ch <- prometheus.MustNewConstMetric(inFlight, prometheus.GaugeValue, float64(one.slots.InUse()), one.name)
	}
}
