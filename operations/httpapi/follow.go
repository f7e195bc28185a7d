package httpapi

import (
	"context"
	"sync"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
)

// follower brings the changes of one operation: from the store, or where that lacks its namespace, which is another
// replica's then, by a watch of its own.
type follower struct {
	*store.Drainer
	own  bool
	stop func()
}

// follow follows an operation from now on. One that has left the store is followed again by a watch of its own, which
// begins with its present state.
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
	if !again && h.Operations.Covered(namespace) { // asked after it is followed: that it leaves then is told, or seen at the next beat
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
	running.Go(func() { _ = run(ctx) }) // it ends with the context, and tries again until then
	drain.From = store.FromSnapshot
	changes = st.Drain(drain)
	return &follower{Drainer: changes, own: true, stop: func() {
		changes.Close()
		end()
		running.Wait()
		st.Close()
	}}, nil
}
