package compiled

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Memory of compiled Webhooks, in bytes. Measured: up to 90 times the text of template actions, and up to 210 times
// that of expressions. The text between actions is not copied.
const (
	leastWeight, perAction, perExpression = 8 << 10, 96, 224
	// maxWeight bounds one Webhook. It allows about 85 KiB of template actions.
	maxWeight = 8 << 20
	// maxHooks bounds the cached Webhooks, and maxPinned those in use by running calls.
	maxHooks, maxPinned = 32 << 20, 64 << 20
)

// weigh estimates the memory of a compiled Webhook in bytes.
func weigh(d webhook.Definition) int {
	templates := actions(d.Request.Method) + actions(d.Request.URL)
	for _, value := range d.Request.Headers {
		templates += actions(value)
	}
	if d.Request.Body != nil {
		templates += actions(*d.Request.Body)
	}
	r, p := &d.Response, &d.Poll
	expressions := len(r.Success) + len(r.Gone) + len(r.Retry) + len(r.Location) + len(r.Error) + len(p.Succeeded) +
		len(p.Failed) + len(p.Error)
	return leastWeight + perAction*templates + perExpression*expressions
}

// actions returns the total length of the actions in a template, as an upper bound.
func actions(template string) (n int) {
	for {
		_, rest, found := strings.Cut(template, "{{")
		if !found {
			return n
		}
		action, after, _ := strings.Cut(rest, "}}")
		n += len(action) + len("{{}}")
		template = after
	}
}

// compileLight compiles a Webhook unless it would take too much memory.
func (h *Cache) compileLight(ctx context.Context, d webhook.Definition) (*webhook.Compiled, error) {
	if weight := weigh(d); weight > maxWeight {
		return nil, &webhook.FieldError{
			Field: "spec",
			Err: fmt.Errorf(
				"its templates and expressions are too long together: they would take %d bytes of memory, more than %d", weight,
				maxWeight,
			),
		}
	}
	return h.compile(ctx, d)
}

// Pin reserves memory for a Webhook during one call. It returns false if its namespace has reached its bound.
func (h *Cache) Pin(hook *webhook.Compiled) bool { return h.pinned.pin(hook) }

// Unpin ends the reservation of Pin.
func (h *Cache) Unpin(hook *webhook.Compiled) { h.pinned.unpin(hook) }

// pinned bounds the memory of the compiled Webhooks that running calls use, which eviction from the cache cannot free.
// A namespace may use as much as remains for others, and always at least one Webhook. The zero value is ready for use.
type pinned struct {
	mu     sync.Mutex
	calls  map[*webhook.Compiled]int
	weight fair.Tally[string] // by namespace
}

// pin pins a Webhook for one call. It returns false if its namespace has reached its bound.
func (p *pinned) pin(hook *webhook.Compiled) bool {
	d := hook.Definition()
	weight := weigh(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[hook] == 0 {
		if used := p.weight.Of(d.Namespace); used > 0 && used+weight > maxPinned-p.weight.All()-weight {
			return false
		}
		if p.calls == nil {
			p.calls = make(map[*webhook.Compiled]int)
		}
		p.weight.Add(d.Namespace, weight)
	}
	p.calls[hook]++
	return true
}

// unpin ends the use of a Webhook by one call.
func (p *pinned) unpin(hook *webhook.Compiled) {
	d := hook.Definition()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls[hook]--; p.calls[hook] == 0 {
		delete(p.calls, hook)
		p.weight.Add(d.Namespace, -weigh(d))
	}
}
