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

// followers creates followers. It has no state.
type followers struct {
	store     *cache.Store
	scheduler *operations.Scheduler // watches operations that the store does not cover
}

func (f followers) covered(namespace string) bool { return f.store.Covered(namespace) }

// follow subscribes to the changes of an operation from now on. The follower passes them to consume, which reports
// whether to continue. With again it uses its own watch, which starts with the present state.
func (f followers) follow(
	ctx context.Context, namespace string, res operations.Resource, consume func([]store.Event) (more bool), again bool,
) (*follower, error) {
	key := objectOf(namespace, res)
	drain := store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{
			Name: "events", From: store.FromNow, Filter: func(record *cache.Record) bool { return record.Key() == key },
		},
		Batch: 16, Consume: consume,
	}
	changes := f.store.Drain(drain)
	// Checked after subscribing: a later loss of coverage arrives as an event or is noticed at the next heartbeat.
	if !again && f.covered(namespace) {
		return &follower{Drainer: changes, stop: changes.Close}, nil
	}
	changes.Close()
	own, run, err := f.scheduler.In(namespace).Follow(res)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) }) // it retries until the context ends
	drain.From = store.FromSnapshot
	changes = own.Drain(drain)
	return &follower{Drainer: changes, own: true, stop: func() {
		changes.Close()
		end()
		running.Wait()
		own.Close()
	}}, nil
}
