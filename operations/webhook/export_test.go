package webhook

import (
	"context"
	"testing"
	"time"
)

// ExpireTokens makes all cached tokens due for renewal.
func (c *Client) ExpireTokens() {
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	for _, e := range c.tokens.entries {
		<-e.turn
		e.token.renewAt = time.Now()
		e.turn <- struct{}{}
	}
}

// LongAnswers returns how many long answers of a namespace hold a slot in memory.
func (c *Client) LongAnswers(namespace string) int {
	long := c.sender.long
	long.mu.Lock()
	defer long.mu.Unlock()
	return long.reading.Line(namespace).Len()
}

// Rendered is a request as it would be sent, without the headers of the protocol.
type Rendered struct {
	Method, URL, Body string
	Header            map[string][]string
}

// Render renders the request of a call.
func (w *Compiled) Render(call Call) (Rendered, error) {
	r, err := w.request.render(call)
	if err != nil {
		return Rendered{}, err
	}
	return Rendered{Method: r.method, URL: r.url.String(), Body: string(r.body), Header: r.header}, nil
}

// JudgeCall returns the result of a call with that answer.
func (w *Compiled) JudgeCall(status int, body string) Result {
	a := &answer{status: status, raw: []byte(body), after: -1}
	a.open(nil)
	return w.rules.judgeCall(a, nil)
}

// SpanAllocs returns how many allocations the span of a try takes.
func SpanAllocs(ctx context.Context, p *Permit) float64 {
	t := &try{sender: p.sender, hook: p.hook}
	return testing.AllocsPerRun(100, func() {
		_, span := p.sender.startSpan(ctx, &p.hook.def, "call", Call{ID: "id"})
		t.endSpan(span, Result{})
	})
}

// Errors and limits for the tests of this package.
var (
	ErrCanceled    = errCanceled
	ErrClosed      = errClosed
	ErrCredentials = errCredentials
	ErrNoAnswer    = errNoAnswer
)

const (
	MaxBody           = maxBody
	MaxFailures       = maxFailures
	MaxFailureMessage = maxFailureMessage
)
