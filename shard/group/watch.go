package group

import (
	"context"
	"log/slog"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// watchLeases watches the Leases of a group until ctx ends. It records them in v and then calls changed.
func watchLeases(
	ctx context.Context, cfg *rest.Config, opt *Options, v *view, log *slog.Logger, changed func(),
) error {
	resource := coordinationv1.SchemeGroupVersion.WithResource("leases")
	s := store.New(store.Options{
		Resource: resource, Kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Namespaced: true,
		Scheme: scheme.Scheme, LabelSelector: Label + "=" + opt.Name, HotBytes: -1, Logger: log,
	})
	defer s.Close()
	drain := s.Drain(store.DrainOptions{Inline: true, Consume: func(events []store.Event) bool {
		for _, e := range events {
			if e.Object != nil && e.Key.Namespace == opt.Namespace {
				v.apply(e, log)
			}
		}
		changed()
		return true
	}})
	defer drain.Close()
	drain.Start()
	src, err := source.New(source.Config{
		REST: cfg, Resource: resource, Namespaces: []string{opt.Namespace}, LabelSelector: Label + "=" + opt.Name,
		Encoding: source.JSON, TrustEmptyList: true, BulkDeleteGuard: -1, SilenceBudget: opt.Duration,
		BackoffCap: opt.Renew / 2, Logger: log,
	}, s.Sink)
	if err != nil {
		return err
	}
	return src.Run(ctx)
}

// apply records an event of the watch.
func (v *view) apply(e store.Event, log *slog.Logger) {
	if e.Type == store.Deleted {
		v.setAbsent(e.Key.Name, e.Object.Version())
		return
	}
	l, err := store.As[lease](e.Object)
	if err != nil {
		log.Warn("a Lease cannot be read", "name", e.Key.Name, "error", err)
		return
	}
	v.deliver(l)
}
