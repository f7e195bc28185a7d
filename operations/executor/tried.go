package executor

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// tried remembers the spans of the last tries of calls that go on, for the next try or poll to link to: it may be in
// another trace by then. The executor that takes over does not know them; it links to the trace as a whole. Only spans
// that are recorded are kept, of a bounded number of calls. It is safe for concurrent use.
type tried struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by idempotency key
}

// maxTried bounds what is remembered; beyond that some calls link to none.
const maxTried = 1 << 14

// last returns the span of the try before, if it is known.
func (t *tried) last(call string) trace.SpanContext {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spans[call]
}

// note remembers a try, unless the call ends with it.
func (t *tried) note(call string, res webhook.Result) {
	goes := res.Verdict == webhook.Retry || res.Verdict == webhook.Accepted && res.Location != "" ||
		res.Verdict == webhook.Pending
	t.mu.Lock()
	defer t.mu.Unlock()
	if !goes || !res.Span.IsSampled() {
		delete(t.spans, call)
		return
	}
	if t.spans == nil {
		t.spans = make(map[string]trace.SpanContext)
	}
	for other := range t.spans {
		if len(t.spans) < maxTried {
			break
		}
		delete(t.spans, other) // of an operation that was deleted, perhaps
	}
	t.spans[call] = res.Span
}
