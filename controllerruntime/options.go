package controllerruntime

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	fairleadcache "github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Options are the choices that controller-runtime has no place for. The zero value works: it is what the functions
// NewCache and NewClient of this package use. Use one value for both:
//
//	fair := controllerruntime.Options{Dir: "/var/cache/operator"}
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{NewCache: fair.NewCache, NewClient: fair.NewClient})
type Options struct {
	// Drop are the fields that are not kept, by kind; those of the zero GroupKind are not kept of any. A field is
	// written as in cache.Content. They are cut before anything is stored, so that what is secret is not in memory. The
	// client refuses to send whole, by a *DroppedError, what lacks them: patch it instead.
	Drop map[schema.GroupKind][]string
	// DropManagedFields are the kinds whose managedFields are not kept; the zero GroupKind stands for all. By default
	// they are. Without them an object that was read cannot be applied, which the client refuses by a *DroppedError,
	// and nothing can be extracted from it for an apply: read it with the manager's GetAPIReader for that.
	DropManagedFields []schema.GroupKind
	// Dir is a directory where stores are saved, and from which they go on at the next start without a list; "": none.
	// It belongs to this program alone, and what is in it is as secret as what is watched.
	Dir string
	// Registry takes the metrics of the stores; nil: they are not measured. Those of controller-runtime are served from
	// metrics.Registry of its package pkg/metrics.
	Registry prometheus.Registerer
	// FilterOwnWrites keeps from handlers what the watch tells of the writes of the client of NewClient. Reconcilers
	// written for controller-runtime may count on being called for them, so they are not filtered by default.
	FilterOwnWrites bool
	// Stores are used instead of stores of its own, and shared with whoever else uses them, such as controllers of
	// Fairlead. Their owner runs them, with Dir and Registry of its own, before the cache is started.
	Stores *fairleadcache.Cache
	// Logger takes what the stores have to say; nil: they say it to nobody.
	Logger *slog.Logger
}

// writer is the name under which own writes are known, where they are to be filtered.
const writer = "controller-runtime"

// holdWrites is whose echoes handlers do not want.
func (o *Options) holdWrites() string {
	if o.FilterOwnWrites {
		return writer
	}
	return ""
}

// check finds options that contradict each other, and fields that cannot be dropped.
func (o *Options) check() error {
	if o.Stores != nil && (o.Dir != "" || o.Registry != nil) {
		return errors.New("options have Stores, and Dir or Registry, which are the business of who made the stores")
	}
	for kind := range o.Drop {
		if err := o.content(kind).Check(); err != nil {
			return fmt.Errorf("kind %q: %w", kind, err)
		}
	}
	return nil
}

// content is what is kept of a kind.
func (o *Options) content(kind schema.GroupKind) store.Content {
	all := schema.GroupKind{}
	return store.Content{
		ManagedFields: !slices.Contains(o.DropManagedFields, kind) && !slices.Contains(o.DropManagedFields, all),
		Drop:          slices.Concat(o.Drop[all], o.Drop[kind]),
	}
}
