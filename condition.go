package fairlead

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/source"
)

// SourceCondition is the condition of a source in one namespace; see [WithSourceCondition].
type SourceCondition struct {
	Cluster   string // "" for the first cluster of the runtime
	Kind      schema.GroupVersionKind
	Namespace string // "" for all namespaces, and for cluster-scoped objects
	Selector  string // of labels and fields; "" for all objects
	// Degraded means that requests fail and are retried. The known state becomes old, and reads return it.
	Degraded bool
	// Ended means that the source is no longer watched. It is the last call for the source.
	Ended   bool
	Reason  string // a word such as Watching, Forbidden or Disconnected, as on the page /debug/sources
	Message string // of the API server, or of the error; may be empty
	Since   time.Time
}

// watchConditions returns the function that reports the conditions of the stores of a cluster; nil if none is wanted.
func (o *options) watchConditions(cluster string) func(context.Context, *cache.Store) {
	if o.condition == nil {
		return nil
	}
	return func(ctx context.Context, st *cache.Store) {
		statuses := st.WatchStatus()
		defer statuses.Close()
		opt, last := st.Options(), map[string]SourceCondition{} // by namespace
		for s := range statuses.C {
			c := SourceCondition{
				Cluster: cluster, Kind: opt.Kind, Namespace: s.Namespace,
				Selector: strings.Trim(opt.LabelSelector+";"+opt.FieldSelector, ";"),
				Degraded: s.Phase == source.Degraded, Ended: s.Phase == source.Stopped,
				Reason: string(s.Reason), Message: s.Message, Since: s.Since,
			}
			before, told := last[s.Namespace]
			switch {
			case s.Phase == source.Connecting || s.Phase == source.Listing: // neither works nor fails
				continue
			case c.Ended && !told, told && before.Degraded == c.Degraded && before.Ended == c.Ended && before.Reason == c.Reason:
				continue
			}
			if last[s.Namespace] = c; c.Ended { // the namespace may be watched again
				delete(last, s.Namespace)
			}
			if p := protect.Call(func() { o.condition(ctx, c) }); p != nil {
				o.logger.ErrorContext(ctx, "the function of WithSourceCondition panicked", "kind", c.Kind.String(),
					"namespace", c.Namespace, "error", p.Value, "stack", string(p.Stack))
			}
		}
	}
}
