package reconcile_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	untraced "go.opentelemetry.io/otel/trace/noop"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

// holding makes spans. It holds the next reconciliation when it has read its object.
type holding struct {
	embedded.Tracer
	next atomic.Bool   // hold the next one
	held chan struct{} // receives when it is held
	open chan struct{} // closed when it may go on
}

func (h *holding) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == "reconcile gateways" && h.next.Swap(false) {
		h.held <- struct{}{}
		<-h.open
	}
	return untraced.Tracer{}.Start(ctx, name, o...)
}

// only is a TracerProvider with one tracer.
type only struct {
	embedded.TracerProvider
	tracer trace.Tracer
}

func (o only) Tracer(string, ...trace.TracerOption) trace.Tracer { return o.tracer }

// The reconciliation that handles the end of a fiber may read a newer object than the fiber has seen, before the event
// of that object comes. The event is not lost.
func TestEventBesideTheEndOfAFiber(t *testing.T) {
	bubble(t, func(b *bench) {
		var mu sync.Mutex
		var seen []int64
		end, event := make(chan struct{}), make(chan struct{})
		fl := flow.New("once", flow.Step("look", func(ctx context.Context, f *flow.Fiber[gateway]) flow.Next {
			var g gateway
			if err := b.client().Get(ctx, web, &g); err != nil {
				return f.Fail(err)
			}
			mu.Lock()
			seen = append(seen, g.Generation)
			first := len(seen) == 1
			mu.Unlock()
			if first {
				<-end
			}
			return f.End()
		}))
		holds := &holding{held: make(chan struct{}), open: make(chan struct{})}
		var taken atomic.Bool
		rank := func(g *gateway) int { // is called first when the event is taken
			if g.Generation == 2 && !taken.Swap(true) {
				<-event
			}
			return 0
		}
		e := flow.NewEngine(flow.EngineOptions{})
		defer e.Close(context.Background())
		reconcile.Flow(b.host, "gateways", e, reconcile.Fibers[gateway, gateway]{
			Flow: fl, Changed: func(context.Context, *gateway) bool { return false },
		}, reconcile.MaxInterval(-1), reconcile.Priority(rank), reconcile.TracerProvider(only{tracer: holds}))
		b.put("web")
		b.start()
		b.change(size(2))
		b.settle()
		holds.next.Store(true)
		close(end)
		<-holds.held
		close(event)
		b.settle()
		close(holds.open)
		b.settle()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(seen, []int64{1, 2}) {
			t.Errorf("the fibers have seen the generations %v", seen)
		}
	})
}
