package httpapi

import (
	"context"
	"sync"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
)

// follower receives the changes of one operation from the store. If the store does not cover the namespace, which
// another replica then owns, it uses its own watch.
type follower struct {
	*store.Drainer
	own  bool
	stop func()
}

// follow subscribes to the changes of an operation from now on. With again it uses its own watch, which starts with the
// present state.
func (h *handler) follow(
	ctx context.Context, s *stream, namespace string, res operations.Resource, again bool,
) (*follower, error) {
	key := objectOf(namespace, res)
	drain := store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{
			Name: "events", From: store.FromNow, Filter: func(record *cache.Record) bool { return record.Key() == key },
		},
		Batch: 16, Consume: s.heardAll,
	}
	s.left, s.own = false, false
	changes := h.Operations.Drain(drain)
	// Checked after subscribing: a later loss of coverage arrives as an event or is noticed at the next heartbeat.
	if !again && h.Operations.Covered(namespace) {
		return &follower{Drainer: changes, stop: changes.Close}, nil
	}
	changes.Close()
	st, run, err := h.Scheduler.In(namespace).Follow(res)
	if err != nil {
		return nil, err
	}
	s.own = true
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) }) // Run retries until the context ends
	drain.From = store.FromSnapshot
	changes = st.Drain(drain)
	return &follower{Drainer: changes, own: true, stop: func() {
		changes.Close()
		end()
		running.Wait()
		st.Close()
	}}, nil
}
