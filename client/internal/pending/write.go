package pending

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// LostTimeout bounds the time to find out whether a write with a lost answer was made. The caller is waiting for its
// error.
const LostTimeout = time.Second

// Writes begins writes. Its fields are constant.
type Writes struct {
	Stores  func(schema.GroupVersionResource) []*cache.Store // the stores of a resource, in all its versions
	Changed func(*cache.Store, cache.Key)                    // called after a write has changed a store; may be nil
	Timeout time.Duration                                    // bounds the time to bring a store up to date
	Log     *slog.Logger
}

// Target describes a write.
type Target struct {
	Op          string // for the log
	Resource    schema.GroupVersionResource
	Kind        schema.GroupVersionKind // for stores that do not name theirs
	Key         cache.Key               // without a name if the server generates it
	Subresource string
	Create      bool
	Version     string // resourceVersion that the request carries
	Sent        []byte // body of a merge patch or an apply, for the ledger
}

// Write is a write in progress, announced to the stores of its resource. The caller must end it with one of Answered,
// Deleted, Absent, Unsure, Lost, Cleared or Refused. It is not safe for concurrent use.
type Write struct {
	writes *Writes
	Target
	dryRun bool
	in     []inStore
}

// inStore is the state of a write in one store.
type inStore struct {
	st    *cache.Store
	w     *store.Write // nil if the store was added after the write began
	shown types.UID    // uid in the store when the write began; deleted if the server has no such object
}

// Begin announces a write to every store of the resource. Stores with a selector decide for themselves whether it
// concerns them.
func (ws *Writes) Begin(owner store.WriteContext, t Target) *Write {
	w := &Write{writes: ws, Target: t}
	for _, st := range ws.Stores(t.Resource) {
		wc, in := owner, inStore{st: st}
		wc.Base, wc.Locked, wc.Create = nil, false, t.Create
		wc.Subresource, wc.Sent = t.Subresource, t.Sent
		if r, ok := st.Get(t.Key); ok {
			in.shown = r.UID()
			if !t.Create && (t.Version == "" || t.Version == r.Version()) {
				wc.Base, wc.Locked = r, t.Version != ""
			}
		}
		in.w = st.BeginWrite(t.Key, wc)
		w.in = append(w.in, in)
	}
	return w
}

// DryRun returns a write that concerns no store.
func (ws *Writes) DryRun() *Write { return &Write{writes: ws, dryRun: true} }

// Watched reports whether the write concerns any store. It includes the stores that were added since the write began,
// because their list may be older than the write.
func (w *Write) Watched() bool {
	if w.dryRun {
		return false
	}
	for _, st := range w.writes.Stores(w.Resource) {
		if !slices.ContainsFunc(w.in, func(in inStore) bool { return in.st == st }) {
			w.in = append(w.in, inStore{st: st})
		}
	}
	return len(w.in) > 0
}

// Refused ends a write that the server has not made. It has no effect after the end of the write.
func (w *Write) Refused() {
	for _, in := range w.in {
		in.refused()
	}
}

// Lost ends a write that may have been made. It asks the server for the object until the context ends or LostTimeout
// is over. If that fails, reads of the object ask the server.
func (w *Write) Lost(ctx context.Context) {
	if !w.Watched() {
		return
	}
	for _, in := range w.in {
		in.st.Doubt(w.Key)
	}
	w.Refused()
	if ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, LostTimeout)
		defer cancel()
		w.refresh(ctx, w.in, "")
	}
}

// Unsure ends a write that was answered, but whose answer does not determine the state of the object. It brings the
// object up to date in all stores.
func (w *Write) Unsure(ctx context.Context) {
	if !w.Watched() {
		return
	}
	w.Refused()
	w.refresh(ctx, w.in, "")
}

// Answered stores the answer to a write. If a store cannot hold it, Answered brings the object up to date there. The
// write succeeded in any case, so Answered returns no error.
func (w *Write) Answered(ctx context.Context, a *Answer) {
	if !w.Watched() {
		return
	}
	if w.Key.Name == "" && a.Readable() {
		w.Key.Name = string(a.head.Name)
	}
	if !a.Readable() {
		w.Unsure(ctx)
		return
	}
	ofKind := func(in inStore) bool { return a.kind.Kind == w.kindOf(in.st).Kind } // in any version
	if a.metadata() || slices.ContainsFunc(w.in, ofKind) {
		switch uid, sure := a.released(w.Resource.GroupResource()); {
		case !sure:
			w.Unsure(ctx)
			return
		case uid != "":
			w.remove(ctx, uid)
			return
		}
	}
	w.put(ctx, a)
}

// Deleted stores the answer to a delete.
func (w *Write) Deleted(ctx context.Context, a *Answer) {
	if !w.Watched() {
		return
	}
	if w.Subresource != "" {
		w.Refused()
		return
	}
	switch deleted, uid, sure := a.deleted(w.Resource.GroupResource()); {
	case !sure:
		w.Unsure(ctx)
	case deleted && uid == "":
		w.Absent(ctx)
	case deleted:
		w.remove(ctx, uid)
	default:
		w.put(ctx, a)
	}
}

// Absent removes from each store the object that it held when the write began, because the server has no object of that
// name.
func (w *Write) Absent(ctx context.Context) {
	w.Watched()
	var outdated []inStore
	for _, in := range w.in {
		switch {
		case in.w == nil:
			outdated = append(outdated, in)
		case in.shown == "":
			in.w.Fail()
		case in.w.Absent(in.shown) == store.NeedsBarrier:
			outdated = append(outdated, in)
		}
		w.changed(in.st)
	}
	w.refresh(ctx, outdated, "")
}

// kindOf returns the kind of the objects in a store.
func (w *Write) kindOf(st *cache.Store) schema.GroupVersionKind {
	if kind := st.Options().Kind; !kind.Empty() {
		return kind
	}
	return w.Kind
}

// put stores the answered object. It refreshes the stores that cannot decide whether they hold it or that hold another
// version of it. It first ends all writes, because a write in progress holds back the events of its key.
func (w *Write) put(ctx context.Context, a *Answer) {
	var outdated []inStore
	for _, in := range w.in {
		var current bool
		if a.kind == w.kindOf(in.st) {
			current = in.put(a, w.Subresource)
		} else {
			in.refused()
			current = w.Subresource != "" && a.version() == "" && !evicts[w.Subresource]
		}
		w.changed(in.st)
		if !current {
			outdated = append(outdated, in)
		}
	}
	w.refresh(ctx, outdated, a.version())
}

// put reports whether the store now has the answer or a newer state.
func (in inStore) put(a *Answer, subresource string) (current bool) {
	var result store.PutResult
	var err error
	switch {
	case in.w != nil:
		if a.code == http.StatusCreated && subresource == "" { // an apply may create
			in.w.Created()
		}
		result, err = in.w.Done(a.enc, a.raw)
	case Unordered(in.st): // the list of the store may be newer
		return false
	default:
		result, err = in.st.Put(a.enc, a.raw)
	}
	return err == nil && result != store.NeedsBarrier
}

func (in inStore) refused() {
	if in.w != nil {
		in.w.Fail()
	}
}

// remove removes the incarnation with uid from the stores.
func (w *Write) remove(ctx context.Context, uid types.UID) {
	var outdated []inStore
	for _, in := range w.in {
		if in.shown != "" && in.shown != uid {
			in.st.PutDeleted(w.Key, in.shown) // it was deleted before the incarnation that the server named was created
		}
		if in.w == nil {
			in.st.PutDeleted(w.Key, uid)
		} else if in.w.Deleted(uid) == store.NeedsBarrier {
			outdated = append(outdated, in)
		}
		w.changed(in.st)
	}
	w.refresh(ctx, outdated, "")
}

// refresh brings the object up to date in the stores that could not hold the answer, concurrently. If that fails, reads
// of the object ask the server. If the name is unknown, refresh waits for the whole store, because lists may include
// the object.
func (w *Write) refresh(ctx context.Context, outdated []inStore, version string) {
	if len(outdated) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.writes.Timeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, in := range outdated {
		wg.Go(func() {
			var err error
			if w.Key.Name == "" {
				err = in.st.Barrier(ctx)
			} else {
				err = in.st.Settle(ctx, w.Key, version)
			}
			if err != nil {
				w.writes.Log.WarnContext(ctx, "the cache does not show a write yet", "op", w.Op,
					"kind", w.kindOf(in.st).Kind, "key", w.Key.String(), "version", version, "error", err)
			}
			w.changed(in.st)
		})
	}
	wg.Wait()
}

func (w *Write) changed(st *cache.Store) {
	if w.writes.Changed != nil {
		w.writes.Changed(st, w.Key)
	}
}

// evicts are the subresources whose create changes the object and does not return it.
var evicts = map[string]bool{"eviction": true, "binding": true}

// Unordered reports whether the versions of a store are opaque. They can be compared for equality but not ordered.
func Unordered(st *cache.Store) bool {
	for _, r := range st.Version() {
		if r < '0' || r > '9' {
			return true
		}
	}
	return false
}
