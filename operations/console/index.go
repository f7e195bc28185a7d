package console

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/pages"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// row is an operation in the lists. It is immutable; a change replaces it.
type row struct {
	key                  cache.Key
	id, correlation      string
	words                string
	opType               v1alpha1.OperationType
	category             string
	resource             operations.Resource
	status               operations.Status
	waiting, reason, err string // err: of a failed operation, else of the last try
	tries                int32  // repeated tries
	done, total          int
	created, finished    time.Time
	canceled             bool
	troubles             []operations.Trouble
	hooks                []string // the Webhooks that it calls
}

// stuckBy returns the first cause for which the operation is stuck, or "". live contains the stuck operations that the
// executor knows. It takes precedence, because the executor knows more than the object.
func (r *row) stuckBy(live map[cache.Key]why.Type, now time.Time) why.Type {
	if r.status != operations.InProgress {
		return ""
	}
	if cause := live[r.key]; cause != "" {
		return cause
	}
	for _, trouble := range r.troubles {
		if !now.Before(trouble.From) {
			return trouble.Cause
		}
	}
	return ""
}

// index follows all operations while readers use lists of them.
type index struct {
	open   opener
	live   func() map[cache.Key]why.Type // stuck operations of the executor
	log    *slog.Logger
	wanted chan struct{} // capacity 1: a reader needs the index
	state  atomic.Uint64

	mu     sync.RWMutex
	last   time.Time // last use
	ready  chan struct{}
	synced bool
	store  *cache.Store // that is followed; nil: none
	rows   map[cache.Key]*row
	sorted []*row // oldest first
}

// idle is the time after the last use until the index is dropped.
const idle = 10 * time.Minute

// opener returns a store of all operations. The caller calls release when it is no longer needed.
type opener func(ctx context.Context) (all *cache.Store, release func(), err error)

func newIndex(open opener, live func() map[cache.Key]why.Type, log *slog.Logger) *index {
	return &index{open: open, live: live, log: log, wanted: make(chan struct{}, 1), ready: make(chan struct{})}
}

// changes returns a number that changes with the content. It counts as a use of the index.
func (x *index) changes() uint64 {
	x.touch()
	return x.state.Load()
}

// run maintains the index while it is in use, until ctx ends.
func (x *index) run(ctx context.Context) error {
	for {
		select {
		case <-x.wanted:
		case <-ctx.Done():
			return nil
		}
		all, release, err := x.open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				x.log.ErrorContext(ctx, "cannot watch the operations of all replicas for the console", "error", err)
			}
			continue // the next reader tries again
		}
		x.follow(ctx, all)
		x.drop()
		release()
	}
}

// follow maintains the index until it is idle.
func (x *index) follow(ctx context.Context, all *cache.Store) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	x.mu.Lock()
	x.store = all
	x.mu.Unlock()
	d := all.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "console"},
		Consume: func(events []store.Event) bool {
			x.apply(all, events)
			return true
		},
		Batch: 256,
	})
	defer d.Close()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		defer cancel()
		for pages.Pause(ctx, idle/10) == nil {
			x.mu.RLock()
			last := x.last
			x.mu.RUnlock()
			if time.Since(last) > idle {
				return
			}
		}
	})
	_ = d.Run(ctx) // ends with ctx or with the store
	cancel()
}

func (x *index) drop() {
	x.state.Add(1) // open pages are rendered again
	x.mu.Lock()
	defer x.mu.Unlock()
	x.store, x.rows, x.sorted = nil, nil, nil
	if x.synced {
		x.synced, x.ready = false, make(chan struct{})
	}
}

// apply applies events of a store.
func (x *index) apply(from *cache.Store, events []store.Event) {
	view := cache.Of[v1alpha1.Operation](from)
	made := make([]*row, len(events))
	for i, e := range events {
		if e.Type == store.Added || e.Type == store.Modified || e.Type == store.Sync {
			if op, err := view.Get(e.Key); err == nil {
				made[i] = rowOf(e.Key, op)
			}
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rows == nil {
		x.rows = map[cache.Key]*row{}
	}
	for i, e := range events {
		switch {
		case e.Type == store.Synced:
			if !x.synced {
				slices.SortFunc(x.sorted, older)
				x.synced = true
				close(x.ready)
			}
		case made[i] != nil:
			x.put(made[i])
		case e.Type == store.Deleted || e.Type == store.Left || e.Type == store.Added || e.Type == store.Modified:
			x.remove(e.Key)
		}
	}
	x.state.Add(1)
}

func (x *index) put(r *row) {
	before := x.rows[r.key]
	x.rows[r.key] = r
	switch {
	case !x.synced && before == nil:
		x.sorted = append(x.sorted, r)
		return
	case !x.synced:
		x.sorted[slices.Index(x.sorted, before)] = r
		return
	case before != nil && older(before, r) == 0:
		at, _ := slices.BinarySearchFunc(x.sorted, before, older)
		x.sorted[at] = r
		return
	case before != nil:
		x.unsort(before)
	}
	at, _ := slices.BinarySearchFunc(x.sorted, r, older)
	x.sorted = slices.Insert(x.sorted, at, r)
}

func (x *index) remove(k cache.Key) {
	before := x.rows[k]
	if before == nil {
		return
	}
	delete(x.rows, k)
	if x.synced {
		x.unsort(before)
		return
	}
	x.sorted = slices.DeleteFunc(x.sorted, func(r *row) bool { return r == before })
}

func (x *index) unsort(r *row) {
	if at, ok := slices.BinarySearchFunc(x.sorted, r, older); ok {
		x.sorted = slices.Delete(x.sorted, at, at+1)
	}
}

// older orders rows by scheduling time, then by key.
func older(a, b *row) int {
	if d := a.created.Compare(b.created); d != 0 {
		return d
	}
	if d := strings.Compare(a.key.Namespace, b.key.Namespace); d != 0 {
		return d
	}
	return strings.Compare(a.key.Name, b.key.Name)
}

func rowOf(k cache.Key, op *v1alpha1.Operation) *row {
	v := operations.ViewOf(op)
	r := &row{
		key: k, id: v.OperationID, correlation: v.CorrelationID, opType: v.OperationType, category: v.OperationCategory,
		resource: operations.Resource{Type: v.ResourceType, ID: v.ResourceID}, status: v.Status, waiting: v.Waiting,
		reason: v.Reason, err: cmp.Or(v.Error, v.LastError), done: v.Progress.Completed, total: v.Progress.Total,
		created: v.CreatedAt, canceled: op.Spec.CancelRequested, troubles: operations.Troubles(op, time.Now()),
	}
	for _, hook := range op.Spec.WebhookIDs {
		r.hooks = append(r.hooks, unique.Make(hook).Value()) // shared between operations
	}
	if v.FinishedAt != nil {
		r.finished = *v.FinishedAt
	}
	r.words = words(r)
	for _, w := range v.Webhooks {
		if w.State == v1alpha1.PhaseInProgress {
			r.tries += w.RetriesCount
		}
	}
	return r
}

// words returns the lower-case text to search in.
func words(r *row) string {
	return strings.ToLower(strings.Join([]string{r.id, r.resource.ID, r.correlation, r.category, r.key.Name}, "\n"))
}

// touch records a use of the index.
func (x *index) touch() (ready <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = time.Now()
	return x.ready
}

// wait waits until the index is complete.
func (x *index) wait(ctx context.Context) error {
	ready := x.touch()
	select {
	case x.wanted <- struct{}{}:
	default:
	}
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// find returns an operation, or false if it is not known. After a change of the index it is at least that new.
func (x *index) find(k cache.Key) (*v1alpha1.Operation, bool) {
	x.mu.RLock()
	all := x.store
	x.mu.RUnlock()
	if all == nil {
		return nil, false
	}
	op, err := cache.Of[v1alpha1.Operation](all).Get(k)
	return op, err == nil
}

// namespaces returns the namespaces of the operations.
func (x *index) namespaces() map[string]bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	names := map[string]bool{}
	for k := range x.rows {
		names[k.Namespace] = true
	}
	return names
}

// filter selects operations. Empty fields restrict nothing.
type filter struct {
	namespace    string
	status       string // an operations.Status, or "stuck"
	opType       string
	category     string
	resourceType string
	webhook      string // called by the operation
	cause        string // a why.Type for which the operation is stuck
	text         string // lower case
	youngest     time.Time
	oldest       time.Time
}

// selects reports whether the filter selects a row. cause is the cause for which its operation is stuck, or "".
func (f *filter) selects(r *row, cause why.Type) bool {
	switch {
	case f.namespace != "" && r.key.Namespace != f.namespace,
		f.status == statusStuck && cause == "",
		f.cause != "" && string(cause) != f.cause,
		f.webhook != "" && !slices.Contains(r.hooks, f.webhook),
		f.status != "" && f.status != statusStuck && string(r.status) != f.status,
		f.opType != "" && string(r.opType) != f.opType,
		f.category != "" && r.category != f.category,
		f.resourceType != "" && r.resource.Type != f.resourceType,
		!f.oldest.IsZero() && r.created.Before(f.oldest),
		!f.youngest.IsZero() && r.created.After(f.youngest):
		return false
	}
	return f.text == "" || strings.Contains(r.words, f.text)
}

// statusStuck selects stuck operations.
const statusStuck = "stuck"

// part is a page of the rows that a filter selects, newest first.
type part struct {
	rows   []*row
	total  int // selected by the filter
	all    int
	counts map[string]int // by status, in the namespace
	causes map[*row]why.Type
	stuck  map[why.Type]int // in the namespace
	open   map[string]int   // by verb, the selected operations to which it applies
	more   bool
	newer  bool
}

// page returns up to limit rows, starting at from.
func (x *index) page(f filter, from, limit int) part {
	live, now := x.live(), time.Now()
	x.mu.RLock()
	defer x.mu.RUnlock()
	p := part{counts: map[string]int{}, causes: map[*row]why.Type{}, stuck: map[why.Type]int{}, open: map[string]int{}}
	inProgress, succeeded, failed, stuck := 0, 0, 0, 0
	for i := len(x.sorted) - 1; i >= 0; i-- {
		r := x.sorted[i]
		cause := r.stuckBy(live, now)
		if f.namespace == "" || r.key.Namespace == f.namespace {
			p.all++
			switch r.status {
			case operations.InProgress:
				inProgress++
				if cause != "" {
					stuck++
					p.stuck[cause]++
				}
			case operations.Succeeded:
				succeeded++
			case operations.Failed:
				failed++
			}
		}
		if !f.selects(r, cause) {
			continue
		}
		if p.total >= from && len(p.rows) < limit {
			p.rows, p.causes[r] = append(p.rows, r), cause
		}
		p.total++
		if verb := r.verb(); verb != "" {
			p.open[verb]++
		}
	}
	p.counts[string(operations.InProgress)], p.counts[string(operations.Succeeded)] = inProgress, succeeded
	p.counts[string(operations.Failed)], p.counts[statusStuck] = failed, stuck
	p.more, p.newer = p.total > from+len(p.rows), from > 0
	return p
}

// verb returns the verb that applies to the operation: retry, cancel, or "".
func (r *row) verb() string {
	switch {
	case r.status == operations.Failed:
		return verbRetry
	case r.status == operations.InProgress && !r.canceled:
		return verbCancel
	}
	return ""
}

// all returns the selected rows to which a verb applies, oldest first.
func (x *index) all(f filter, verb string) (rows []*row) {
	live, now := x.live(), time.Now()
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, r := range x.sorted {
		if r.verb() == verb && f.selects(r, r.stuckBy(live, now)) {
			rows = append(rows, r)
		}
	}
	return rows
}

// outcomes counts the operations that call a Webhook, by state.
type outcomes struct{ InProgress, Stuck, Succeeded, Failed int }

// Ended returns the number of ended operations, and Rate the fraction of them that succeeded.
func (o outcomes) Ended() int    { return o.Succeeded + o.Failed }
func (o outcomes) Rate() float64 { return float64(o.Succeeded) / float64(max(1, o.Ended())) }

// outcomes returns the outcomes by Webhook, of a namespace or of all if it is empty.
func (x *index) outcomes(namespace string) map[cache.Key]*outcomes {
	live, now := x.live(), time.Now()
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := map[cache.Key]*outcomes{}
	for _, r := range x.sorted {
		if namespace != "" && r.key.Namespace != namespace {
			continue
		}
		for _, hook := range r.hooks {
			k := cache.Key{Namespace: r.key.Namespace, Name: hook}
			o := all[k]
			if o == nil {
				o = &outcomes{}
				all[k] = o
			}
			switch r.status {
			case operations.Succeeded:
				o.Succeeded++
			case operations.Failed:
				o.Failed++
			default:
				if o.InProgress++; r.stuckBy(live, now) != "" {
					o.Stuck++
				}
			}
		}
	}
	return all
}
