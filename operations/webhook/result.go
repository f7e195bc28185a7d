package webhook

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/backoff"
)

// Verdict is what a try or poll means.
type Verdict int

// The verdicts. The zero value is none of them.
const (
	_         Verdict = iota
	Succeeded         // judged successful
	Failed            // judged failed, for good
	Accepted          // Async: poll Result.Location; AsyncCallback: wait for the callback
	Pending           // of a poll: still in progress, or no usable answer; poll again
	Retry             // try again with the same ID
	Invalid           // a field cannot be rendered; Err is a *FieldError
	Refused           // the guard refused the target; Err is a *guard.RefusedError
	Canceled          // the caller's context ended first; nothing was judged
)

var verdictNames = [...]string{
	"None", "Succeeded", "Failed", "Accepted", "Pending", "Retry", "Invalid", "Refused",
	"Canceled",
}

// String is the name of the verdict; it suits a metric label.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return verdictNames[0]
	}
	return verdictNames[v]
}

// Result is the outcome of one try or one poll. It holds no secret values.
type Result struct {
	Verdict    Verdict
	Gone       bool   // the rule gone matched, whatever the verdict: a Delete has succeeded
	StatusCode int    // 0: no answer
	Message    string // for people: one line, at most MaxMessage bytes; empty on plain success
	Location   string // Accepted in mode Async: the absolute URL to poll
	// RetryAfter is what the answer asked for, in [0, 24h]; negative if it did not. NextTry and NextPoll heed it.
	RetryAfter time.Duration
	Truncated  bool          // the answer was longer than 1 MiB; only its start was judged
	Duration   time.Duration // of the whole try
	Err        error         // the typed cause where there is one, see the Err variables
	// Span is that of the try or poll, where there is a TracerProvider.
	Span trace.SpanContext
}

// NextTry tells when to try again after a Retry, with tries made so far (at least 1): exponential with full jitter, or
// what Retry-After said. It reports false when the tries are used up. rnd is for example rand.Float64; see
// backoff.Policy.
func (w *Compiled) NextTry(tries int, r Result, rnd func() float64) (time.Duration, bool) {
	if tries >= w.def.Retry.MaxAttempts {
		return 0, false
	}
	policy := backoff.Policy{Base: w.def.Retry.InitialInterval, Cap: w.def.Retry.MaxInterval}
	if r.RetryAfter >= 0 {
		return max(r.RetryAfter, policy.Ceiling(0)/10, MinInterval), true
	}
	return max(policy.Delay(tries-1, rnd), MinInterval), true
}

// NextPoll tells when to poll after an Accepted or Pending: the interval, or what Retry-After said.
func (w *Compiled) NextPoll(r Result) time.Duration {
	if r.RetryAfter >= 0 {
		// Retry-After: 0 must not become a busy loop
		return max(r.RetryAfter, min(w.def.Poll.Interval, time.Second), MinInterval)
	}
	return w.def.Poll.Interval
}

// oneLine makes text fit for a status: valid UTF-8, one line, no control characters, bounded.
func oneLine(text string) string {
	const ellipsis = "…"
	var b strings.Builder
	space := false
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			space = b.Len() > 0
			continue
		}
		if b.Len()+utf8.RuneLen(r)+1 > MaxMessage-len(ellipsis) {
			b.WriteString(ellipsis)
			break
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
