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

// Options are settings that controller-runtime does not have. The zero value is valid; the functions NewCache and
// NewClient of this package use it. Use the same value for both:
//
//	fair := controllerruntime.Options{Dir: "/var/cache/operator"}
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{NewCache: fair.NewCache, NewClient: fair.NewClient})
type Options struct {
	// Drop lists the fields that are not kept, by kind; the zero GroupKind applies to all kinds. The notation of a
	// field is that of cache.Content. Fields are removed before objects are stored, so secret data is never in memory.
	// The client refuses to send a whole object that lacks dropped fields, with a *DroppedError; patch it instead.
	Drop map[schema.GroupKind][]string
	// Keep excepts objects from Drop, by kind; the function of the zero GroupKind is for kinds without one of their own.
	// An object for which the function returns true keeps all its fields. The function is called for each version of an
	// object that arrives. It must depend on its arguments alone, be safe for concurrent use, and not change labels. Kinds
	// with a function are not saved in Dir.
	//
	//	controllerruntime.Options{
	//		Drop: map[schema.GroupKind][]string{{Kind: "Secret"}: {"data"}},
	//		Keep: map[schema.GroupKind]func(namespace, name string, labels map[string]string) bool{
	//			{Kind: "Secret"}: func(_, name string, _ map[string]string) bool {
	//				return strings.HasSuffix(name, "-kubeconfig")
	//			},
	//		},
	//	}
	Keep map[schema.GroupKind]func(namespace, name string, labels map[string]string) bool
	// DropManagedFields lists the kinds whose managedFields are not kept; the zero GroupKind means all kinds. Default:
	// managedFields are kept. Without them a cached object cannot be applied (the client returns a *DroppedError) and
	// cannot be extracted for an apply. Read it with the manager's GetAPIReader instead.
	DropManagedFields []schema.GroupKind
	// Dir is a directory in which the stores are saved; the next start resumes from it without a list. Empty means
	// none. It belongs to this program alone, and its content is as secret as the watched objects.
	Dir string
	// Registry is the registry for the metrics of the stores; nil means no metrics. controller-runtime serves
	// metrics.Registry of its package pkg/metrics.
	Registry prometheus.Registerer
	// FilterOwnWrites hides events for writes of the client of NewClient from handlers. It is off by default, since
	// reconcilers written for controller-runtime may depend on these events.
	FilterOwnWrites bool
	// Stores are used instead of new stores, and can be shared, for example with controllers of Fairlead. Their owner
	// runs them, with its own Dir and Registry, before the cache starts.
	Stores *fairleadcache.Cache
	// Logger is the logger of the stores; nil means no logs.
	Logger *slog.Logger
}

// writer is the name that marks own writes with FilterOwnWrites.
const writer = "controller-runtime"

// holdWrites returns the writer whose events are hidden from handlers.
func (o *Options) holdWrites() string {
	if o.FilterOwnWrites {
		return writer
	}
	return ""
}

// check reports contradictory options and fields that cannot be dropped.
func (o *Options) check() error {
	if o.Stores != nil && (o.Dir != "" || o.Registry != nil) {
		return errors.New("options have Stores, and Dir or Registry, which are the business of who made the stores")
	}
	for kind := range o.Drop {
		if err := o.content(kind).Check(); err != nil {
			return fmt.Errorf("kind %q: %w", kind, err)
		}
	}
	for kind := range o.Keep {
		dropped := len(o.Drop[schema.GroupKind{}]) > 0 || len(o.Drop[kind]) > 0 || kind.Empty() && len(o.Drop) > 0
		if !dropped {
			return fmt.Errorf("kind %q: options have Keep, and Drop names no fields", kind)
		}
	}
	return nil
}

// content returns the content that the stores keep of a kind.
func (o *Options) content(kind schema.GroupKind) store.Content {
	all := schema.GroupKind{}
	content := store.Content{
		ManagedFields: !slices.Contains(o.DropManagedFields, kind) && !slices.Contains(o.DropManagedFields, all),
		Drop:          slices.Concat(o.Drop[all], o.Drop[kind]),
	}
	if len(content.Drop) > 0 {
		if content.Keep = o.Keep[kind]; content.Keep == nil {
			content.Keep = o.Keep[all]
		}
	}
	return content
}
