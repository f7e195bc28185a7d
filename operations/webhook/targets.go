package webhook

import (
	"math"
	"strings"
	"time"
)

// TargetState is the state of one endpoint in a Client: its limits, and the record of its latest tries. The JSON names
// are those of the console.
type TargetState struct {
	Namespace string `json:"namespace"`
	Webhook   string `json:"webhook"` // the name of the definition

	Circuit  BreakerState `json:"circuit"`
	Since    time.Time    `json:"since,omitzero"` // start of that state; zero: it never changed
	Until    time.Time    `json:"until,omitzero"` // Open: the earliest time of the next call
	InARow   int          `json:"inARow"`         // failures since the last success
	UnderWay int          `json:"underWay"`       // permitted requests that have not ended

	Concurrency   int     `json:"concurrency,omitempty"`   // bound of concurrent requests; 0: none
	RatePerSecond float64 `json:"ratePerSecond,omitempty"` // bound of started requests; 0: none
	// Waiting is the number of callers that wait for a slot or a turn and have not withdrawn.
	Waiting int `json:"waiting"`

	Tries int64 `json:"tries"` // finished tries and polls since New
	// SuccessRate and Latency are exponentially weighted means with a half-life of five minutes. SuccessRate is between
	// 0 and 1. Both are 0 if there were no tries.
	SuccessRate float64       `json:"successRate"`
	Latency     time.Duration `json:"latency"`            // in nanoseconds
	Last        time.Time     `json:"last,omitzero"`      // end of the last try
	Failures    []Failure     `json:"failures,omitempty"` // the latest, at most 5, newest first
}

// Failure is an unsuccessful try.
type Failure struct {
	At       time.Time     `json:"at"` // its end
	Verdict  string        `json:"verdict"`
	Status   int           `json:"status,omitempty"` // 0: no answer
	Message  string        `json:"message"`          // without secrets, at most 256 bytes
	Duration time.Duration `json:"duration"`         // in nanoseconds
}

// Bounds of the record of an endpoint.
const (
	maxFailures       = 5
	maxFailureMessage = 256
)

// halfLife is the age at which a try has half its weight.
const halfLife = 5 * time.Minute

// record is the history of the tries of an endpoint. Its owner locks it.
type record struct {
	tries                int64
	weight, failed, took float64 // of tries, failures, nanoseconds; decaying
	last                 time.Time
	failures             [maxFailures]*Failure
	newest               int
}

// describe adds the history to the state of the endpoint.
func (r *record) describe(s *TargetState) {
	s.Tries, s.Last = r.tries, r.last
	if r.weight > 0 {
		s.SuccessRate = 1 - r.failed/r.weight
		s.Latency = time.Duration(r.took / r.weight)
	}
	for i := range r.failures {
		if f := r.failures[(r.newest+maxFailures-i)%maxFailures]; f != nil {
			s.Failures = append(s.Failures, *f)
		}
	}
}

// add adds the result of a try. It ignores canceled tries, which carry no information.
func (r *record) add(res Result, now time.Time) {
	if res.Verdict == Canceled {
		return
	}
	if age := now.Sub(r.last); r.weight > 0 && age > 0 {
		left := math.Exp2(-age.Seconds() / halfLife.Seconds())
		r.weight, r.failed, r.took = r.weight*left, r.failed*left, r.took*left
	}
	r.tries++
	r.weight++
	r.took += float64(res.Duration)
	r.last = now
	switch {
	case res.Verdict == Succeeded, res.Verdict == Accepted, res.Verdict == Pending && res.Err == nil &&
		res.StatusCode < 400,
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

// cut truncates a text to at most n bytes.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:n-len(ellipsis)], "") + ellipsis
}
