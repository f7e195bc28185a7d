package executor

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// tried remembers the spans of the last tries of unfinished calls, so that the next try or poll can link to them. It
// may be in another trace by then. A successor does not know them and links to the trace as a whole. Only sampled
// spans are kept, for a bounded number of calls. It is safe for concurrent use.
type tried struct {
	mu    sync.Mutex
	spans map[string]trace.SpanContext // by idempotency key
}

// maxTried bounds the remembered spans. Above it, some calls have no link.
const maxTried = 1 << 14

// last returns the span of the previous try; zero if it is not known.
func (t *tried) last(call string) trace.SpanContext {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spans[call]
}

// record remembers the span of a try, unless the call has ended with it.
func (t *tried) record(call string, res webhook.Result) {
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
		delete(t.spans, other) // its operation may have been deleted
	}
	t.spans[call] = res.Span
}
