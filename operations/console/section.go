package console

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/why"
)

// Section configures the pages of operations. The stores, the scheduler and the executor are required.
//
// If Operations holds the slots of one replica of a group, the section watches the operations of all replicas while
// readers use its lists. The pages then show the same operations at each replica.
type Section struct {
	Operations, Webhooks *cache.Store
	Scheduler            *operations.Scheduler
	// Executor runs the operations in this process.
	Executor *executor.Executor
	// Namespaces are the served namespaces. Empty: all.
	Namespaces []string
	// TraceURL is the URL of a trace with {trace} in place of its id. Pages of operations link to it. Default: only the
	// id is shown.
	TraceURL string
}

//go:embed templates
var templates embed.FS

// Open returns the contents of the section. console.New calls it.
func (s Section) Open(host pages.Host) (*pages.Contents, error) {
	if s.Operations == nil || s.Webhooks == nil || s.Scheduler == nil || s.Executor == nil {
		return nil, errors.New("the stores of operations, their scheduler and their executor are required")
	}
	if s.TraceURL != "" {
		u, err := url.Parse(s.TraceURL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(s.TraceURL, "{trace}") {
			return nil, fmt.Errorf("%q is not the URL of a trace, such as https://traces.example.com/trace/{trace}", s.TraceURL)
		}
	}
	own, err := fs.Sub(templates, "templates")
	if err != nil {
		return nil, err
	}
	x := newIndex(s.all(host.Cache), s.Executor.Stuck, host.Log)
	var recent pages.Recent[[]string]
	served := &pages.Namespaces{
		Served: s.Namespaces,
		InUse:  func() []string { return recent.Get(func() []string { return inUse(x, s.Webhooks) }) },
	}
	lists := &pages.Scope{Namespaces: served, Access: listOperations}
	changes := &changer{served: served, index: x, scheduler: s.Scheduler, log: host.Log}
	outcomes := &webhookOutcomes{index: x, lists: lists}
	list := &operationsPage{
		index: x, lists: lists, updates: &pages.Scope{Namespaces: served, Access: updateOperations},
	}
	one := &operationPage{index: x, changes: changes, executor: s.Executor, explain: host.Explain, traceURL: s.TraceURL}
	bulk := &bulkPage{
		index: x, lists: lists, changes: changes, places: make(chan struct{}, maxBulks), log: host.Log,
	}
	hooks := &webhooksPage{store: s.Webhooks, executor: s.Executor, served: served, outcomes: outcomes}
	hook := &webhookPage{
		store: s.Webhooks, executor: s.Executor, served: served, outcomes: outcomes, explain: host.Explain,
	}
	return &pages.Contents{
		Templates: own, Funcs: funcs,
		Pages:    []pages.Page{list.page(), hooks.page(), hook.page(), one.page(), bulk.page()},
		Actions:  []pages.Action{one.action(), bulk.action()},
		Whole:    lists.All(),
		Overview: &pages.Overview{Scope: lists, Data: (&summary{index: x}).data},
		Plots: []pages.Plot{
			{Title: "Operations that ended", Unit: "per second", Of: finished},
			{Title: "Time of an operation", Unit: "seconds, mean", Of: finishedFamily + "_sum", By: finishedFamily + "_count"},
		},
		Blocked: func() []pages.Blocked {
			since, blocked := s.Executor.Flows().BlockedSince()
			if !blocked {
				return nil
			}
			return []pages.Blocked{pages.EngineBlocked("engine of operations", since)}
		},
		Fibers: func() iter.Seq[flow.Info] { return s.Executor.Flows().Fibers() },
		Objects: &pages.Objects{
			KindHint: "Operation, deploy, …", NameHint: "of an operation also TYPE/ID", Rename: objectName, Link: linkOf,
		},
		Task: "console index", Run: x.run,
	}, nil
}

// The plotted counters.
const (
	finished       = "fairlead_operations_finished_total"
	finishedFamily = "fairlead_operation_duration_seconds"
)

// explain is pages.Host.Explain.
type explain func(ctx context.Context, rd *pages.Reader, of why.Object) (why.Answer, error)

// all returns an opener. Its store is Operations, or a store of from if Operations holds only the slots of a replica.
func (s Section) all(from *cache.Cache) opener {
	return func(ctx context.Context) (*cache.Store, func(), error) {
		select {
		case <-s.Operations.Synced(): // now Held knows whether replicas divide the operations
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		if _, divided := s.Operations.Held(); !divided || from == nil {
			return s.Operations, func() {}, nil
		}
		claim, err := from.Acquire(v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation),
			cache.Namespaces(s.Namespaces...), cache.EverySlot())
		if err != nil {
			return nil, nil, err
		}
		return claim.Store, claim.Release, nil
	}
}

// inUseTimeout bounds how long a reader waits for the first list of all operations before the page offers namespaces.
const inUseTimeout = 5 * time.Second

// inUse returns the namespaces with objects.
func inUse(x *index, hooks *cache.Store) []string {
	ctx, cancel := context.WithTimeout(context.Background(), inUseTimeout)
	defer cancel()
	_ = x.wait(ctx) // without the index, the namespaces of the Webhooks remain
	names := x.namespaces()
	for k := range hooks.Snapshot().All() {
		names[k.Key().Namespace] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// objectName returns the name of the operation that is named by its resource, as TYPE/ID.
func objectName(name string) string {
	if kind, id, ok := strings.Cut(name, "/"); ok {
		return v1alpha1.OperationName(kind, id)
	}
	return name
}

// linkOf returns the page of an operation.
func linkOf(of why.Object) (path, title string) {
	if of.Kind != v1alpha1.KindOperation {
		return "", ""
	}
	return operationPath(cache.Key{Namespace: of.Namespace, Name: of.Name}), "Page of the operation"
}

func operationPath(k cache.Key) string {
	return "/console/operations/" + url.PathEscape(k.Namespace) + "/" + url.PathEscape(k.Name)
}

func listOperations(namespace string) access.Access {
	return httpapi.OperationAccess("list", namespace)
}

func updateOperations(namespace string) access.Access {
	return httpapi.OperationAccess("update", namespace)
}

// shows returns a function that reports whether a kind is that of the API group of operations with a name.
func shows(name string) func(schema.GroupKind) bool {
	return func(kind schema.GroupKind) bool {
		return kind == schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: name}
	}
}

// summary is the part of the overview.
type summary struct{ index *index }

func (s *summary) data(ctx context.Context) ([]pages.Tile, []pages.Breakdown, error) {
	if err := s.index.wait(ctx); err != nil {
		return nil, nil, err
	}
	p := s.index.page(filter{}, 0, 0)
	tile := func(id, title, status, level, text string) pages.Tile {
		t := pages.Tile{
			ID: id, Title: title, Path: "/console/operations?status=" + status, Value: p.counts[status], Text: text,
		}
		if t.Value > 0 {
			t.Level = level
		}
		return t
	}
	tiles := []pages.Tile{
		tile("progress", "In progress", string(operations.InProgress), "", "operations"),
		tile("stuck", "Stuck", statusStuck, "warn", "their last attempt failed, or they wait too long"),
		tile("failed", "Failed", string(operations.Failed), "bad",
			pages.Count(p.counts[string(operations.Succeeded)])+" succeeded"),
	}
	if len(p.stuck) == 0 {
		return tiles, nil, nil
	}
	return tiles, []pages.Breakdown{{ID: "stuck", Title: "Stuck, by first cause", Rows: stuckRows(p.stuck)}}, nil
}

// stuckRows returns the causes of stuck operations, the most frequent first.
func stuckRows(counts map[why.Type]int) (all []pages.BreakdownRow) {
	for cause, n := range counts {
		all = append(all, pages.BreakdownRow{
			ID: "stuck-" + string(cause), Count: n, Text: stuckText(cause, n), Label: string(cause),
			Path: "/console/operations?" + url.Values{"status": {statusStuck}, "cause": {string(cause)}}.Encode(),
		})
	}
	slices.SortFunc(all, func(a, b pages.BreakdownRow) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Label, b.Label))
	})
	return all
}

// stuckText describes the common cause of n operations.
func stuckText(cause why.Type, n int) string {
	wait := "operations wait "
	if n == 1 {
		wait = "operation waits "
	}
	object := map[why.Type]string{
		why.LockHeld: "for the end of another operation that holds a lock", why.WebhookMissing: "for a missing Webhook",
		why.NotReleased: "for credentials that are not released", why.Quarantined: "for a quarantined Webhook",
		why.CircuitOpen: "for an open circuit", why.RateLimited: "for a limit on calls or writes",
		why.RetryAfter: "longer than the receiver has asked for", why.Forbidden: "for a missing right",
		why.Conflict: "behind conflicting writes", why.BackOff: "to retry after an error",
		why.SourceStale: "for the watch to catch up", why.DeadlinePassed: "for their end, past the deadline",
	}[cause]
	return wait + cmp.Or(object, "longer than declared")
}

// funcs are the functions for templates.
var funcs = template.FuncMap{
	"attempts": func(retries int32) int32 { return retries + 1 },
	"percent":  func(part float64) string { return strconv.Itoa(int(part*100+0.5)) + " %" },

	// Geometry of a timeline: names to the left, labels below.
	"tickX": func(x float64) float64 { return x + timelineLeft }, "tickY": func(high int) int { return high + tickText },
	"timelineHigh": func(high int) int { return high + tickText + laneHigh/2 },
	"barY":         func(y int) int { return y + barInset }, "markY": func(y int) int { return y + laneHigh/2 },
	"laneText": func(y int) int { return y + barInset + 1 },
	// On a phone, names are above the lanes.
	"phoneX":    func(x float64) float64 { return phoneInset + x*phoneWide/timeWide },
	"phoneY":    func(i int) int { return i * phoneLane },
	"phoneWide": func(wide float64) float64 { return max(wide*phoneWide/timeWide, leastShown) },
	"add":       func(a, b int) int { return a + b }, "even": func(i int) bool { return i%2 == 0 },
}
