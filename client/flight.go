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

// layer lays the answers to writes over the stores that hold what was written.
type layer struct {
	stores  func(schema.GroupVersionResource) []*cache.Store // of a resource, in all its versions
	poke    func(*cache.Store, Key)                          // wakes those who wait for an object; nil: there are none
	timeout time.Duration                                    // of bringing a store up to date
	log     *slog.Logger
}

// target is what a write is about.
type target struct {
	op       string // for the log
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind // of stores that do not say theirs
	key      Key                     // without a name, if the server is to make one
	sub      string
	create   bool
	version  string // that the request carries
	sent     []byte // body of a merge patch or an apply, for the ledger
}

// flight is a write that is under way, as the stores of its resource know it.
type flight struct {
	*layer
	target
	dry bool // nothing is written
	on  []landing
}

// landing is where a write is laid over one store.
type landing struct {
	st    *cache.Store
	w     *store.Write // nil: the store has come since
	shown types.UID    // what the store showed when the write took off, which is gone if the server does not know it
}

// takeOff announces a write to every store of the resource, those with a selector too: each decides whether it concerns
// it. Every flight has to end: by land, deleted, absent, lost or fail.
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

// join adds the stores that have come since the write took off: what they have listed may be older than it.
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

// fail ends a write that was refused. It does nothing to one that has ended.
func (f *flight) fail() {
	for _, o := range f.on {
		if o.w != nil {
			o.w.Fail()
		}
	}
}

// lostPatience bounds what is waited to learn what has become of a write whose answer was lost: its author has an error
// to deal with.
const lostPatience = time.Second

// lost ends a write that may have been made. The server is asked what has become of it, as long as there is time. Where
// that fails, readers ask the server.
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

// land makes reads see what was answered: it puts the answer over the stores, and where that is not possible it brings
// the object up to date there. The write was made, whatever comes of that, so there is no error.
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
	ofKind := func(o landing) bool { return a.kind.Kind == f.kindOf(o.st).Kind } // in whatever version
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

// kindOf returns the kind of what a store holds.
func (f *flight) kindOf(st *cache.Store) schema.GroupVersionKind {
	if kind := st.Options().Kind; !kind.Empty() {
		return kind
	}
	return f.kind
}

// done lays the answered object over the stores, and settles those that cannot tell whether they hold it, or hold
// another version of it. All writes have ended before: else the events of the key would be held back meanwhile.
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

// done says whether the store now shows the answer, or something newer.
func (o landing) done(a *reply, subresource string) (settled bool) {
	var result store.PutResult
	var err error
	switch {
	case o.w != nil:
		if a.code == http.StatusCreated && subresource == "" { // an apply may create
			o.w.Created()
		}
		result, err = o.w.Done(a.enc, a.raw)
	case unordered(o.st): // its list may be newer
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

// deleted lays the answer to a delete over the stores.
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

// gone makes reads say that the incarnation is gone that the server has named.
func (f *flight) gone(ctx context.Context, uid types.UID) {
	var unsettled []landing
	for _, o := range f.on {
		if o.shown != "" && o.shown != uid {
			o.st.PutDeleted(f.key, o.shown) // it made room for the one that was deleted
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

// absent makes reads say that what each store showed when the write took off is gone: the server knows no object of
// that name.
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

// settle brings the object up to date in stores over which the answer could not be laid, all at once. Where that fails,
// readers ask the server until it is. Of what has no name that is known nobody reads it, but lists may show it.
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

// evicts are the subresources whose create changes the object without an answer that shows it.
var evicts = map[string]bool{"eviction": true, "binding": true}
