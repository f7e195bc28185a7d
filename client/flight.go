package client

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

// layer adds the answers of writes to the stores of the written resource.
type layer struct {
	stores  func(schema.GroupVersionResource) []*cache.Store // stores of a resource, in all its versions
	poke    func(*cache.Store, Key)                          // wakes waits on an object; may be nil
	timeout time.Duration                                    // for bringing a store up to date
	log     *slog.Logger
}

// target describes a write.
type target struct {
	op       string // for the log
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind // for stores that do not name theirs
	key      Key                     // without a name if the server generates it
	sub      string
	create   bool
	version  string // resourceVersion that the request carries
	sent     []byte // body of a merge patch or an apply, for the ledger
}

// flight is a write in progress, announced to the stores of its resource.
type flight struct {
	*layer
	target
	dry bool // a dry run
	on  []landing
}

// landing is the state of a write in one store.
type landing struct {
	st    *cache.Store
	w     *store.Write // nil if the store was added after the write began
	shown types.UID    // uid in the store when the write began; deleted if the server has no such object
}

// takeOff announces a write to every store of the resource. Stores with a selector decide for themselves whether it
// concerns them. The caller must end every flight with land, deleted, absent, lost or fail.
func (l *layer) takeOff(owner store.WriteContext, t target) *flight {
	f := &flight{layer: l, target: t}
	for _, st := range l.stores(t.resource) {
		wc, o := owner, landing{st: st}
		wc.Base, wc.Locked, wc.Create = nil, false, t.create
		wc.Subresource, wc.Sent = t.sub, t.sent
		if r, ok := st.Get(t.key); ok {
			o.shown = r.UID()
			if !t.create && (t.version == "" || t.version == r.Version()) {
				wc.Base, wc.Locked = r, t.version != ""
			}
		}
		o.w = st.BeginWrite(t.key, wc)
		f.on = append(f.on, o)
	}
	return f
}

// join includes the stores that were added since the write began, because their list may be older than the write. It
// reports whether there are any stores.
func (f *flight) join() (some bool) {
	if f.dry {
		return false
	}
	for _, st := range f.stores(f.resource) {
		if !slices.ContainsFunc(f.on, func(o landing) bool { return o.st == st }) {
			f.on = append(f.on, landing{st: st})
		}
	}
	return len(f.on) > 0
}

// fail ends a write that was refused. It has no effect after the end of the write.
func (f *flight) fail() {
	for _, o := range f.on {
		if o.w != nil {
			o.w.Fail()
		}
	}
}

// lostPatience bounds the time to find out whether a write with a lost answer was made. The caller is waiting for its
// error.
const lostPatience = time.Second

// lost ends a write that may have been made. It asks the server for the object until the context ends or lostPatience
// is over. If that fails, reads of the object ask the server.
func (f *flight) lost(ctx context.Context) {
	if !f.join() {
		return
	}
	for _, o := range f.on {
		o.st.Doubt(f.key)
	}
	f.fail()
	if ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, lostPatience)
		defer cancel()
		f.settle(ctx, f.on, "")
	}
}

// land stores the answer to a write. If a store cannot hold it, land brings the object up to date there. The write
// succeeded in any case, so land returns no error.
func (f *flight) land(ctx context.Context, a *reply) {
	if !f.join() {
		return
	}
	if f.key.Name == "" && a.readable() {
		f.key.Name = string(a.head.Name)
	}
	if !a.readable() {
		f.fail()
		f.settle(ctx, f.on, "")
		return
	}
	ofKind := func(o landing) bool { return a.kind.Kind == f.kindOf(o.st).Kind } // in any version
	if a.metadata() || slices.ContainsFunc(f.on, ofKind) {
		switch uid, sure := a.over(f.resource.GroupResource()); {
		case !sure:
			f.fail()
			f.settle(ctx, f.on, "")
			return
		case uid != "":
			f.gone(ctx, uid)
			return
		}
	}
	f.done(ctx, a)
}

// kindOf returns the kind of the objects in a store.
func (f *flight) kindOf(st *cache.Store) schema.GroupVersionKind {
	if kind := st.Options().Kind; !kind.Empty() {
		return kind
	}
	return f.kind
}

// done stores the answered object. It settles the stores that cannot decide whether they hold it or that hold another
// version of it. It first ends all writes, because a write in progress holds back the events of its key.
func (f *flight) done(ctx context.Context, a *reply) {
	var unsettled []landing
	for _, o := range f.on {
		var settled bool
		if a.kind == f.kindOf(o.st) {
			settled = o.done(a, f.sub)
		} else {
			o.fail()
			settled = f.sub != "" && a.version() == "" && !evicts[f.sub]
		}
		f.wake(o.st)
		if !settled {
			unsettled = append(unsettled, o)
		}
	}
	f.settle(ctx, unsettled, a.version())
}

// done reports whether the store now has the answer or a newer state.
func (o landing) done(a *reply, subresource string) (settled bool) {
	var result store.PutResult
	var err error
	switch {
	case o.w != nil:
		if a.code == http.StatusCreated && subresource == "" { // an apply may create
			o.w.Created()
		}
		result, err = o.w.Done(a.enc, a.raw)
	case unordered(o.st): // the list of the store may be newer
		return false
	default:
		result, err = o.st.Put(a.enc, a.raw)
	}
	return err == nil && result != store.NeedsBarrier
}

func (o landing) fail() {
	if o.w != nil {
		o.w.Fail()
	}
}

// deleted stores the answer to a delete.
func (f *flight) deleted(ctx context.Context, a *reply) {
	if !f.join() {
		return
	}
	if f.sub != "" {
		f.fail()
		return
	}
	switch gone, uid, sure := a.deleted(f.resource.GroupResource()); {
	case !sure:
		f.fail()
		f.settle(ctx, f.on, "")
	case gone && uid == "":
		f.absent(ctx)
	case gone:
		f.gone(ctx, uid)
	default:
		f.done(ctx, a)
	}
}

// gone removes the incarnation with uid from the stores.
func (f *flight) gone(ctx context.Context, uid types.UID) {
	var unsettled []landing
	for _, o := range f.on {
		if o.shown != "" && o.shown != uid {
			o.st.PutDeleted(f.key, o.shown) // it was deleted before the incarnation that the server named was created
		}
		if o.w == nil {
			o.st.PutDeleted(f.key, uid)
		} else if o.w.Deleted(uid) == store.NeedsBarrier {
			unsettled = append(unsettled, o)
		}
		f.wake(o.st)
	}
	f.settle(ctx, unsettled, "")
}

// absent removes from each store the object that it held when the write began, because the server has no object of that
// name.
func (f *flight) absent(ctx context.Context) {
	f.join()
	var unsettled []landing
	for _, o := range f.on {
		switch {
		case o.w == nil:
			unsettled = append(unsettled, o)
		case o.shown == "":
			o.w.Fail()
		case o.w.Deleted(o.shown) == store.NeedsBarrier:
			unsettled = append(unsettled, o)
		}
		f.wake(o.st)
	}
	f.settle(ctx, unsettled, "")
}

// settle brings the object up to date in the stores that could not hold the answer, concurrently. If that fails, reads
// of the object ask the server. If the name is unknown, settle waits for the whole store, because lists may include the
// object.
func (f *flight) settle(ctx context.Context, on []landing, version string) {
	if len(on) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, o := range on {
		wg.Go(func() {
			var err error
			if f.key.Name == "" {
				err = o.st.Barrier(ctx)
			} else {
				err = o.st.Settle(ctx, f.key, version)
			}
			if err != nil {
				f.log.WarnContext(ctx, "the cache does not show a write yet", "op", f.op, "kind", f.kindOf(o.st).Kind,
					"key", f.key.String(), "version", version, "error", err)
			}
			f.wake(o.st)
		})
	}
	wg.Wait()
}

func (f *flight) wake(st *cache.Store) {
	if f.poke != nil {
		f.poke(st, f.key)
	}
}

// evicts are the subresources whose create changes the object and does not return it.
var evicts = map[string]bool{"eviction": true, "binding": true}
