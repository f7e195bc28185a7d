package watch

import (
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// row is an object in a table.
type row struct{ namespace, name, state, age, version string }

func rowOf(r *cache.Record, now time.Time) row {
	out := row{namespace: r.Namespace(), name: r.Name(), version: r.Version(), state: "-", age: "-"}
	if u, err := store.As[unstructured.Unstructured](r); err == nil {
		out.state = stateOf(u.Object)
		if t := u.GetCreationTimestamp(); !t.IsZero() {
			out.age = duration.HumanDuration(now.Sub(t.Time))
		}
	}
	if r.Deleting() {
		out.state = "Terminating"
	}
	return out
}

// stateOf returns the state of an object of any kind in one word: its phase, or its condition Ready or Available.
func stateOf(object map[string]any) string {
	if phase, ok, _ := unstructured.NestedString(object, "status", "phase"); ok && phase != "" {
		return phase
	}
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	for _, want := range []string{"Ready", "Available", "Established"} {
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == want {
				if m["status"] == "True" {
					return want
				}
				return "Not" + want
			}
		}
	}
	return "-"
}

// table writes one line per event, for output that cannot be rewritten. Statuses go to stderr.
type table struct {
	namespaced bool
	log        io.Writer
	headed     bool
}

func newTable(r resource, log io.Writer) *table { return &table{namespaced: r.namespaced, log: log} }

func (t *table) event(w io.Writer, e store.Event) error {
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Sync, store.Left:
	case store.Synced:
		_, err := fmt.Fprintf(t.log, "synced: %d objects at version %s\n", e.Count, e.Version)
		return err
	case store.Epoch:
		_, err := fmt.Fprintf(t.log, "the history of the server was rolled back: %s\n", e.Reason)
		return err
	case store.QuarantinedObject:
		_, err := fmt.Fprintf(t.log, "quarantined: %s at version %s: %v\n", e.Key, e.Version, e.Err)
		return err
	}
	if !t.headed {
		t.headed = true
		if err := t.line(w, "EVENT", row{"NAMESPACE", "NAME", "STATE", "AGE", "VERSION"}); err != nil {
			return err
		}
	}
	return t.line(w, e.Type.String(), rowOf(e.Object, time.Now()))
}

func (t *table) line(w io.Writer, event string, r row) error {
	if t.namespaced {
		event = fmt.Sprintf("%-9s %-20s", event, r.namespace)
	} else {
		event = fmt.Sprintf("%-9s", event)
	}
	_, err := fmt.Fprintf(w, "%s %-40s %-14s %-7s %s\n", event, r.name, r.state, r.age, r.version)
	return err
}

func (t *table) status(_ io.Writer, s source.Status) error { return logStatus(t.log, s) }
func (t *table) stats(_ io.Writer, s watchStats) error     { return logStats(t.log, s) }
func (t *table) slots(_ io.Writer, _ string, held shard.Set) error {
	return logSlots(t.log, held)
}
func (t *table) flush(io.Writer) error { return nil }
