package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/fair"
)

// Bounds of concurrent and waiting requests.
const (
	defaultInFlight  = 64
	defaultStreams   = 1024
	defaultCallbacks = 64

	requestsWait, callbacksWait = 256, 256 // of one namespace
	maxWait                     = 5 * time.Second
	// linger bounds how long the server reads the rest of an unwanted body, so that the answer arrives.
	linger = time.Second
)

// limits holds the slots of a handler, each shared by namespace and then by caller.
type limits struct {
	requests, streams, callbacks *fair.Semaphore
	pages                        *fair.Semaphore // CPU-bound, so at most one per processor
	refused                      *prometheus.CounterVec
}

func newLimits(o Options) *limits {
	return &limits{
		requests:  &fair.Semaphore{Slots: o.MaxInFlight, Waiting: requestsWait, Wait: maxWait},
		streams:   &fair.Semaphore{Slots: o.MaxStreams},
		callbacks: &fair.Semaphore{Slots: o.MaxCallbacks, Waiting: callbacksWait, Wait: maxWait},
		pages:     &fair.Semaphore{Slots: max(1, runtime.GOMAXPROCS(0)-1), Waiting: requestsWait, Wait: maxWait},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_http_refused_total",
			Help: "Rejected requests to the HTTP API, by limit and by caller or total.",
		}, []string{"limit", "scope"}),
	}
}

var inFlight = prometheus.NewDesc("fairlead_http_in_flight", "Requests in progress, by limit.", []string{"limit"}, nil)

// Describe implements prometheus.Collector.
func (l *limits) Describe(ch chan<- *prometheus.Desc) { l.refused.Describe(ch); ch <- inFlight }

// Collect implements prometheus.Collector.
func (l *limits) Collect(ch chan<- prometheus.Metric) {
	l.refused.Collect(ch)
	for name, t := range map[string]*fair.Semaphore{
		"requests": l.requests, "streams": l.streams, "callbacks": l.callbacks, "pages": l.pages,
	} {
		ch <- prometheus.MustNewConstMetric(inFlight, prometheus.GaugeValue, float64(t.InUse()), name)
	}
}

// enter takes a slot; the caller must call leave afterwards. The error is meant for the client.
func (l *limits) enter(ctx context.Context, t *fair.Semaphore, who fair.Party) (leave func(), err error) {
	leave, err = t.Acquire(ctx, who)
	var busy *fair.BusyError
	if !errors.As(err, &busy) {
		return leave, err
	}
	what, name, after := "requests", "requests", 1
	switch t {
	case l.streams:
		what, name, after = "event streams", "streams", 5
	case l.callbacks:
		what, name = "callbacks", "callbacks"
	case l.pages:
		what, name = "pages", "pages"
	}
	p := &Problem{Status: http.StatusTooManyRequests, Title: "Too many " + what, after: after}
	switch busy.Scope {
	case fair.ScopeMember:
		p.Detail, busy.Scope = "this caller has as many at a time as it may have", "caller"
	case fair.ScopeGroup:
		p.Detail, busy.Scope = "this namespace has as many at a time as it may have", "namespace"
	default:
		p.Status, p.Detail = http.StatusServiceUnavailable, "this server has as many at a time as it can"
	}
	if p.Detail += ": try again later"; t == l.streams {
		p.Detail += ", or poll with GET"
	}
	l.refused.WithLabelValues(name, busy.Scope).Inc()
	return nil, p
}

// endpoint answers a request, or returns an error without an answer.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// admission is a request whose caller has the required right.
type admission struct {
	namespace, token string
	query            url.Values
	who              fair.Party
	wrong            faults // further problems of the request
}

// limited returns an endpoint for callers who have the right for verb. It bounds the time and the number of concurrent
// requests. It reads and looks up no data for other callers. It refuses query parameters other than the namespace and
// the given ones.
func (h *handler) limited(
	verb string, next func(w http.ResponseWriter, r *http.Request, a admission) error, parameters ...string,
) http.Handler {
	return h.plain(func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
		a, err := h.admit(r, verb, parameters...)
		if err != nil {
			return err
		}
		leave, err := h.limits.enter(ctx, h.limits.requests, a.who)
		if err != nil {
			return err
		}
		defer leave()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		return next(w, r, a)
	})
}

// plain returns an endpoint that slow clients cannot block. It drops clients that do not read the answer, and does not
// wait for a body that was not read.
func (h *handler) plain(next endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(access.WithClient(r.Context(), r))
		control, now := http.NewResponseController(w), time.Now()
		_ = control.SetWriteDeadline(now.Add(2 * h.Timeout)) // fails only with some test servers
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(now.Add(h.Timeout))
			if r.ProtoMajor == 1 {
				w.Header().Set("Connection", "close") // until the body is read: the server would read it before it answers
			}
		}
		if err := next(w, r); err != nil {
			h.refuse(w, r, err)
		}
		if w.Header().Get("Connection") == "close" {
			_ = control.SetReadDeadline(time.Now().Add(linger))
		}
	})
}
