package webhook

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// TargetState is what a Client knows of one endpoint: what holds calls back, and how the last ones went. The JSON names
// are those of the console.
type TargetState struct {
	Namespace string `json:"namespace"`
	Webhook   string `json:"webhook"` // the name of the definition

	Circuit  BreakerState `json:"circuit"`
	Since    time.Time    `json:"since,omitzero"` // of that state; zero: it was never in another one
	Until    time.Time    `json:"until,omitzero"` // Open: when the next call may try
	InARow   int          `json:"inARow"`         // failures, since the last success
	UnderWay int          `json:"underWay"`       // requests that have been given leave and have not ended

	Concurrency   int     `json:"concurrency,omitempty"`   // at most so many under way; 0: no bound
	RatePerSecond float64 `json:"ratePerSecond,omitempty"` // at most so many begun; 0: no bound
	// Waiting is how many have asked for leave, have not got it for want of a place or a turn, and have not given up.
	Waiting int `json:"waiting"`

	Tries int64 `json:"tries"` // that have ended, since the Client was made; polls too
	// SuccessRate and Latency are means of the last minutes, in which what is older counts less and less: half after five
	// minutes. SuccessRate is from 0 to 1; both are 0 where there were no tries.
	SuccessRate float64       `json:"successRate"`
	Latency     time.Duration `json:"latency"`            // in nanoseconds
	Last        time.Time     `json:"last,omitzero"`      // when the last try ended
	Failures    []Failure     `json:"failures,omitempty"` // the last of them, 5 at most, the newest first
}

// Failure is a try that did not bring what was asked for.
type Failure struct {
	At       time.Time     `json:"at"` // its end
	Verdict  string        `json:"verdict"`
	Status   int           `json:"status,omitempty"` // 0: no answer
	Message  string        `json:"message"`          // without secrets, 256 bytes at most
	Duration time.Duration `json:"duration"`         // in nanoseconds
}

// Bounds of what is kept of an endpoint.
const (
	maxFailures       = 5
	maxFailureMessage = 256
)

// halfLife is after what time a try counts half.
const halfLife = 5 * time.Minute

// Targets returns the state of the endpoints of a namespace, or of all if it is empty, sorted by namespace and name:
// those that leave was asked for, and that were not forgotten since.
func (c *Client) Targets(namespace string) []TargetState {
	c.mu.Lock()
	found := make(map[string]*gate)
	for endpoint, g := range c.gates {
		if namespace == "" || strings.HasPrefix(endpoint, namespace+"/") {
			found[endpoint] = g
		}
	}
	c.mu.Unlock()
	all := make([]TargetState, 0, len(found))
	for endpoint, g := range found {
		of, name, _ := strings.Cut(endpoint, "/")
		all = append(all, g.state(of, name))
	}
	slices.SortFunc(all, func(a, b TargetState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Webhook, b.Webhook))
	})
	return all
}

// Target is Targets for one endpoint. It is false where nobody has asked for leave.
func (c *Client) Target(namespace, name string) (TargetState, bool) {
	c.mu.Lock()
	g := c.gates[Definition{Namespace: namespace, Name: name}.endpoint()]
	c.mu.Unlock()
	if g == nil {
		return TargetState{Namespace: namespace, Webhook: name, Circuit: Closed}, false
	}
	return g.state(namespace, name), true
}

func (g *gate) state(namespace, name string) TargetState {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, r := g.breaker.status, &g.record
	s := TargetState{
		Namespace: namespace, Webhook: name, Circuit: b.State, Since: g.since, Until: b.Until, InARow: b.Failures,
		UnderWay: g.inFlight, Concurrency: g.capacity, Waiting: g.queue.Len(), Tries: r.tries, Last: r.last,
	}
	if g.limiter != nil {
		s.RatePerSecond = float64(g.limiter.Limit())
		s.Waiting += len(g.turnOf)
	}
	if r.weight > 0 {
		s.SuccessRate = 1 - r.failed/r.weight
		s.Latency = time.Duration(r.took / r.weight)
	}
	for i := range r.failures {
		if f := r.failures[(r.newest+maxFailures-i)%maxFailures]; f != nil {
			s.Failures = append(s.Failures, *f)
		}
	}
	return s
}

// record is what is kept of the tries of an endpoint. Its owner locks.
type record struct {
	tries                int64
	weight, failed, took float64 // of tries, of failures among them, and nanoseconds that they took: each counts less by and by
	last                 time.Time
	failures             [maxFailures]*Failure
	newest               int
}

// remember notes what a try has brought. One that was cancelled says nothing.
func (g *gate) remember(res Result, now time.Time) {
	if res.Verdict == Canceled {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.record
	if age := now.Sub(r.last); r.weight > 0 && age > 0 {
		left := math.Exp2(-age.Seconds() / halfLife.Seconds())
		r.weight, r.failed, r.took = r.weight*left, r.failed*left, r.took*left
	}
	r.tries++
	r.weight++
	r.took += float64(res.Duration)
	r.last = now
	switch {
	case res.Verdict == Succeeded, res.Verdict == Accepted, res.Verdict == Pending && res.Err == nil && res.StatusCode < 400,
		res.Verdict == Failed && res.Gone:
		return
	}
	r.failed++
	r.newest = (r.newest + 1) % maxFailures
	r.failures[r.newest] = &Failure{
		At: now, Verdict: res.Verdict.String(), Status: res.StatusCode, Message: cut(res.Message, maxFailureMessage),
		Duration: res.Duration,
	}
}

// cut returns the beginning of a text, at most n bytes of it.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:n-len(ellipsis)], "") + ellipsis
}
