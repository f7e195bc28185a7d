package watch

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
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

// stateOf returns the state of an object of any kind in one word: its phase, what its conditions say, or where its flow
// is.
func stateOf(object map[string]any) string {
	if phase, ok, _ := unstructured.NestedString(object, "status", "phase"); ok && phase != "" {
		return phase
	}
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	if state := stateOfConditions(conditions); state != "" {
		return state
	}
	status, _, _ := unstructured.NestedMap(object, "status")
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if state := stateOfFlow(status[name]); state != "" {
			return state
		}
	}
	return "-"
}

// stateOfConditions prefers the conditions that summarize an object. Of others it returns the type of the last one that
// is True, such as Complete or Failed of a Job.
func stateOfConditions(conditions []any) (state string) {
	is := map[string]string{}
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		kind, _ := m["type"].(string)
		status, _ := m["status"].(string)
		if is[kind] = status; status == "True" {
			state = kind
		}
	}
	for _, kind := range []string{"Ready", "Available", "Established"} {
		switch status := is[kind]; status {
		case "":
		case "True":
			return kind
		default:
			return "Not" + kind
		}
	}
	return state
}

// stateOfFlow returns how the flow of a [flow.Position] has ended or the name of its step, and "" for another value.
func stateOfFlow(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	var p flow.Position
	if runtime.DefaultUnstructuredConverter.FromUnstructured(m, &p) != nil || p.Flow == "" || p.Step == "" {
		return ""
	}
	if p.Ended {
		return p.Reason
	}
	return path.Base(p.Step)
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
