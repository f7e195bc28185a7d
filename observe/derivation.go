package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// derivation fills the store of a derived source from its inputs, which it observes. The derived store supports
// snapshots, a cursor per observer, prior states and coalescing like any other store.
type derivation struct {
	host   derivedHost
	store  *cache.Store
	sink   source.Sink
	make   func(*cache.Record) (client.Object, error) // nil object: none; the caller may modify the object
	inputs []*Observer

	mu          sync.Mutex // serializes the sink; no user code runs under it
	closed      bool
	leaving     bool // an object of an input has left with its slot
	version     uint64
	pending     int // inputs not synced; the store stays empty while there are any
	made        map[claim]cache.Key
	quarantined map[claim]source.Quarantined // objects for which the function failed
	claims      map[cache.Key][]candidate    // sorted; the store has, or will have, the first one
}

// derivedHost is what a derivation needs of its registry.
type derivedHost struct {
	origin *Origin       // the derived source
	store  store.Options // of the derived store
	// observe returns an observer of an input, and declare declares it.
	observe func(in input, call func(context.Context, *store.Event) error) *Observer
	declare func(*Observer)
}

// claim identifies an object of an input.
type claim struct {
	input int
	key   cache.Key
}

// candidate is the object made from a claim.
type candidate struct {
	claim
	object client.Object // nil if the store has it
}

func derivedFrom[U any, Q Object[U]](
	convert func(*cache.Record) (*U, error),
) func(derivedHost) *feed {
	return func(h derivedHost) *feed {
		d := &derivation{
			host: h, pending: len(h.origin.inputs), made: map[claim]cache.Key{},
			quarantined: map[claim]source.Quarantined{}, claims: map[cache.Key][]candidate{},
		}
		d.make = func(r *cache.Record) (client.Object, error) {
			object, err := convert(r)
			if object == nil || err != nil {
				return nil, err
			}
			if generic, ok := any(object).(runtime.Unstructured); ok {
				return generic.DeepCopyObject().(client.Object), nil
			}
			own := *object // it includes the metadata; deeper values are not modified
			return Q(&own), nil
		}
		return d.open()
	}
}

func (d *derivation) open() *feed {
	d.store = store.New(d.host.store)
	d.sink = d.store.Sink("")
	if d.pending == 0 {
		d.sink.Replace().Commit(source.Commit{Version: "1", Reason: "no input is given"})
	}
	for i, in := range d.host.origin.inputs {
		by := d.host.observe(in, func(_ context.Context, e *store.Event) error { return d.event(i, e) })
		d.inputs = append(d.inputs, by)
	}
	for _, by := range d.inputs {
		d.host.declare(by)
	}
	return &feed{store: d.store, close: d.close}
}

func (d *derivation) close() {
	for _, by := range d.inputs {
		by.Remove()
	}
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.store.Close()
}

// event handles a change of an input.
func (d *derivation) event(input int, e *store.Event) error {
	from := claim{input, e.Key}
	var object client.Object
	if e.Type == store.Added || e.Type == store.Modified {
		var err error
		if object, err = d.protect(e.Object); err != nil {
			d.quarantine(from, e.Object, err)
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Left:
		d.leaving = e.Type == store.Left
		if err := d.change(from, object); err != nil {
			return err
		}
		return d.release(from)
	case store.Synced:
		if d.pending--; d.pending == 0 {
			return d.commit()
		}
	case store.Epoch:
		return d.epoch(e.Reason)
	}
	return nil
}

// protect calls the user's function and checks that its result can be stored.
func (d *derivation) protect(r *cache.Record) (object client.Object, err error) {
	if p := protect.Call(func() { object, err = d.makeFor(r) }); p != nil {
		return nil, (*panicError)(p)
	}
	return object, err
}

func (d *derivation) makeFor(r *cache.Record) (client.Object, error) {
	object, err := d.make(r)
	if object == nil || err != nil {
		return nil, err
	}
	inherit(object, r)
	raw, err := json.Marshal(object)
	if err == nil {
		_, err = scan(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot encode what was made: %w", err)
	}
	return object, nil
}

// inherit fills in the fields that the function left empty.
func inherit(object client.Object, from *cache.Record) {
	if object.GetName() == "" {
		object.SetName(from.Name())
		if object.GetNamespace() == "" {
			object.SetNamespace(from.Namespace())
		}
	}
	if object.GetUID() == "" {
		object.SetUID(from.UID())
	}
	if object.GetUID() == "" {
		object.SetUID(types.UID(from.Key().String()))
	}
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
}

// change replaces the object made from a claim; nil removes it.
func (d *derivation) change(from claim, object client.Object) error {
	old, had := d.made[from]
	var now cache.Key
	if object != nil {
		now = client.KeyOf(object)
	}
	if had && (object == nil || old != now) {
		if err := d.withdraw(from, old); err != nil {
			return err
		}
	}
	if object == nil {
		return nil
	}
	d.made[from] = now
	list := d.claims[now]
	at, found := slices.BinarySearchFunc(list, from, func(c candidate, f claim) int { return compare(c.claim, f) })
	if !found {
		list = slices.Insert(list, at, candidate{claim: from})
		d.claims[now] = list
	}
	if at > 0 || d.pending > 0 { // another candidate takes precedence, or the store is not filled yet
		list[at].object = object
		return nil
	}
	if len(list) > 1 && !found { // the previous first candidate may be needed again
		var err error
		if list[1].object, err = d.current(now); err != nil {
			return err
		}
	}
	return d.put(now, object)
}

func compare(a, b claim) int {
	return cmp.Or(cmp.Compare(a.input, b.input), cmp.Compare(a.key.Namespace, b.key.Namespace),
		cmp.Compare(a.key.Name, b.key.Name))
}

// withdraw removes the object made from a claim.
func (d *derivation) withdraw(from claim, key cache.Key) error {
	delete(d.made, from)
	list := d.claims[key]
	at, found := slices.BinarySearchFunc(list, from, func(c candidate, f claim) int { return compare(c.claim, f) })
	if !found {
		return nil
	}
	list = slices.Delete(list, at, at+1)
	if len(list) == 0 {
		delete(d.claims, key)
	} else {
		d.claims[key] = list
	}
	switch {
	case at > 0 || d.pending > 0:
		return nil
	case len(list) == 0:
		return d.remove(key)
	}
	next := list[0].object
	list[0].object = nil
	return d.put(key, next)
}

// commit publishes the first candidates once all inputs are synced.
func (d *derivation) commit() error {
	all := d.replace()
	for _, list := range d.claims {
		raw, err := d.encode(list[0].object)
		if err == nil {
			err = all.Put(raw)
		}
		if err != nil {
			all.Abort()
			return err
		}
		list[0].object = nil
	}
	d.version++
	all.Commit(source.Commit{Version: strconv.FormatUint(d.version, 10), Reason: "the inputs are synced"})
	return nil
}

// epoch forwards the event that the history of an input was rolled back.
func (d *derivation) epoch(reason string) error {
	if d.pending > 0 {
		return nil
	}
	all := d.replace()
	for r := range d.store.Snapshot().All() {
		o, err := scan(r.Raw())
		if err == nil {
			err = all.Put(o)
		}
		if err != nil {
			all.Abort()
			return err
		}
	}
	d.version++
	all.Commit(source.Commit{Version: strconv.FormatUint(d.version, 10), Epoch: true, Reason: reason})
	return nil
}

// put stores an object unless the store has the same one.
func (d *derivation) put(key cache.Key, object client.Object) error {
	change := source.Added
	if prior, ok := d.store.Get(key); ok {
		change = source.Modified
		d.name(object)
		object.SetResourceVersion(prior.Version())
		if raw, err := json.Marshal(object); err == nil && bytes.Equal(raw, prior.Raw()) {
			return nil
		}
	}
	o, err := d.encode(object)
	if err != nil {
		return err
	}
	return d.sink.Apply(change, o)
}

func (d *derivation) remove(key cache.Key) error {
	if d.leaving { // the derived object leaves together with its input
		d.store.Leave(key)
		return nil
	}
	object, err := d.current(key)
	if object == nil || err != nil {
		return err
	}
	o, err := d.encode(object)
	if err != nil {
		return err
	}
	return d.sink.Apply(source.Deleted, o)
}

// current returns a copy of the stored object.
func (d *derivation) current(key cache.Key) (client.Object, error) {
	r, ok := d.store.Get(key)
	if !ok {
		return nil, nil
	}
	object, err := d.host.origin.decode(r)
	if err != nil {
		return nil, err
	}
	return object.DeepCopyObject().(client.Object), nil
}

// encode assigns the next version to an object and encodes it.
func (d *derivation) encode(object client.Object) (*source.Object, error) {
	d.version++
	d.name(object)
	object.SetResourceVersion(strconv.FormatUint(d.version, 10))
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", client.KeyOf(object), err)
	}
	return scan(raw)
}

func (d *derivation) name(object client.Object) {
	if k := object.GetObjectKind(); k.GroupVersionKind().Empty() {
		k.SetGroupVersionKind(d.store.Options().Kind)
	}
}

func scan(raw []byte) (*source.Object, error) {
	o := &source.Object{Raw: raw, Encoding: source.JSON}
	if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
		return nil, err
	}
	return o, nil
}
