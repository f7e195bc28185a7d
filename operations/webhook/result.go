package webhook

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
)

// Verdict is the meaning of a try or poll.
type Verdict int

// The verdicts. The zero value is none of them.
const (
	_         Verdict = iota
	Succeeded         // judged successful
	Failed            // judged failed, permanently
	Accepted          // Async: poll Result.Location; AsyncCallback: wait for the callback
	Pending           // of a poll: still in progress, or no usable answer; poll again
	Retry             // try again with the same ID
	Invalid           // a field cannot be rendered; Err is a *FieldError
	Refused           // the guard refused the target; Err is a *guard.RefusedError
	Canceled          // the caller's context ended first; no answer was judged
)

var verdictNames = [...]string{
	"None", "Succeeded", "Failed", "Accepted", "Pending", "Retry", "Invalid", "Refused",
	"Canceled",
}

// String returns the name of the verdict. It is suitable as a metric label.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return verdictNames[0]
	}
	return verdictNames[v]
}

// Result is the outcome of one try or one poll. It contains no secret values.
type Result struct {
	Verdict    Verdict
	Gone       bool   // the rule gone matched, whatever the verdict: a Delete has succeeded
	StatusCode int    // 0: no answer
	Message    string // human-readable: one line, at most MaxMessage bytes; empty on plain success
	Location   string // Accepted in mode Async: the absolute URL to poll
	// RetryAfter is the Retry-After of the answer, in [0, 24h], or negative without one. NextTry and NextPoll use it.
	RetryAfter time.Duration
	Truncated  bool          // the answer was longer than 1 MiB; only its start was judged
	Duration   time.Duration // of the whole try
	Err        error         // the cause, if known; see the Err variables
	// Span is the span of the try or poll, if there is a TracerProvider.
	Span trace.SpanContext
}

// oneLine makes text suitable for a status: valid UTF-8, one line, no control characters, bounded.
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
