package watch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// follow runs a source into a store and prints the events, until the context ends.
func follow(ctx context.Context, s cli.Streams, o options, config *rest.Config, resource resource) error {
	log := slog.New(slog.DiscardHandler)
	warn := slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if o.verbose {
		log = slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
		warn = log
	}
	p := newPrinter(s, o.output, resource, o.stats, ctx.Done())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	show := func(name string, held shard.Set) {
		if err := p.slots(name, held); err != nil {
			cancel(err)
		}
	}
	member, err := newMembership(config, o.groupOptions, o.layout, o.program(resource), warn, show)
	if err != nil {
		return err
	}
	st := store.New(store.Options{
		Resource: resource.gvr, Kind: resource.gvr.GroupVersion().WithKind(resource.kind),
		Namespaced: resource.namespaced, LabelSelector: o.labels, FieldSelector: o.fields,
		Shard: member.name(), Logger: log,
	})
	defer st.Close()
	member.cover(o.namespaces, resource.gvr.GroupResource().String(), st)
	life := ctx
	if member != nil { // its objects are shown as left before it ends
		life = context.WithoutCancel(ctx)
	}
	life, end := context.WithCancelCause(life)
	defer end(nil)
	src, err := source.New(source.Config{
		REST: config, Resource: resource.gvr, Namespaces: o.namespaces, Sharding: member.sharding(),
		LabelSelector: o.labels, FieldSelector: o.fields,
		PageSize: o.pageSize, NoWatchList: o.noWatchList, SilenceBudget: o.silence, ListProgressTimeout: o.listProgress,
		MaxWatch: o.maxWatch, BackoffBase: o.backoffBase, BackoffCap: o.backoffCap, BulkDeleteGuard: o.bulkGuardFlag,
		Logger: log,
	}, st.Sink)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	statuses := st.WatchStatus()
	var ends []source.Status // last statuses, printed after the pending output
	running.Go(func() {
		for status := range statuses.C {
			if status.Phase == source.Stopped {
				ends = append(ends, status)
				continue
			}
			if err := p.status(status); err != nil {
				cancel(err)
			}
		}
	})
	changes := st.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "watch", Resync: o.resync},
		Batch:            watchBatch,
		Consume: func(batch []store.Event) (more bool) {
			err = member.show(life, batch, p.print)
			return err == nil
		},
	})
	var sourcing sync.WaitGroup
	sourcing.Go(func() {
		if err := src.Run(life); err != nil {
			cancel(err)
		}
	})
	sourcing.Go(func() {
		if err := member.run(ctx); err != nil {
			cancel(err)
		}
		if member != nil {
			end(context.Cause(ctx))
		}
	})
	if ended := member.follow(life, changes, func() bool { return err != nil }); err == nil {
		err = ended
	}
	cancel(nil)
	sourcing.Wait() // it reports the stop and hands over the slots
	statuses.Close()
	running.Wait()
	closed := p.close(ends)
	for _, interrupted := range []error{context.Canceled, errInterrupted} {
		if errors.Is(err, interrupted) {
			err = nil // the normal end
		}
		if errors.Is(closed, interrupted) {
			closed = nil
		}
	}
	return cmp.Or(err, closed)
}

// watchBatch is the number of events printed before a flush.
const watchBatch = 256
