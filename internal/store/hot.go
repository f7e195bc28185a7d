package store

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"
)

// form is one decoded form of a record. While it is in the hot set it holds the object; after that it only remembers it
// weakly, so that an object that somebody still uses is found again, and one that nobody uses is collected.
type form struct {
	next  *form
	typ   reflect.Type // T
	obj   any          // *T; nil when it is held weakly
	weak  weak.Pointer[byte]
	used  atomic.Bool // since the hot set looked last
	check *mutationCheck
}

// value returns the object of a form, *T; nil if nobody uses it any more.
func (v *form) value() any {
	if v.obj != nil {
		return v.obj
	}
	if p := v.weak.Value(); p != nil {
		return reflect.NewAt(v.typ, unsafe.Pointer(p)).Interface()
	}
	return nil
}

// read notes that the object, which is held, is given to a reader.
func (v *form) read(r *Record) {
	if !v.used.Load() {
		v.used.Store(true)
	}
	if v.check != nil {
		v.verify(r, "")
	}
}

// hotSet bounds the decoded objects that are held although nobody may use them: a clock with a second chance.
type hotSet struct {
	mu       sync.Mutex                  // also serializes changes of Record.forms
	decoding map[decodeKey]chan struct{} // closed when the decoding ends; nil: nobody waits for it
	limit    int64
	bytes    int64
	ring     []hotEntry
	suspects []hotEntry // were let go, and are to be looked at for mutations when the lock is free
	hand     int

	detect    bool
	mutations atomic.Int64
}

// decodeKey names a decoding that is under way: readers who want the same wait for it.
type decodeKey struct {
	rec *Record
	typ reflect.Type
}

type hotEntry struct {
	rec  *Record
	form *form
	cost int64
}

const (
	defaultHotBytes = 32 << 20
	// decodedFactor is how much larger a decoded object is than its encoded form, roughly.
	decodedFactor = 4
)

func (h *hotSet) init(limit int64, detect bool) {
	h.limit, h.detect = limit, detect
	if h.limit == 0 {
		h.limit = defaultHotBytes
	}
}

// asCold finds an object that is held weakly, or decodes it: a *T for t, T. Of several readers at the same time one
// decodes, beside another version of the object, which may be nil.
func (r *Record) asCold(t reflect.Type, other *Record) (any, error) {
	h := &r.codec.hot
	mine := decodeKey{r, t}
	h.mu.Lock()
	for {
		if o := r.stillUsed(t); o != nil {
			h.mu.Unlock()
			return o, nil
		}
		other, busy := h.decoding[mine]
		if !busy {
			break
		}
		if other == nil {
			other = make(chan struct{})
			h.decoding[mine] = other
		}
		h.mu.Unlock()
		<-other
		h.mu.Lock()
	}
	if h.decoding == nil {
		h.decoding = map[decodeKey]chan struct{}{}
	}
	h.decoding[mine] = nil
	h.mu.Unlock()

	var v *form
	var size int
	defer func() { // also if the decoder of a type of the user's panics
		h.mu.Lock()
		if v != nil {
			h.insert(r, v, int64(size)*decodedFactor)
		}
		if waiting := h.decoding[mine]; waiting != nil {
			close(waiting)
		}
		delete(h.decoding, mine)
		suspects := h.suspects
		h.suspects = nil
		h.mu.Unlock()
		for _, e := range suspects {
			e.form.verify(e.rec, "") // calls code of the user's
		}
	}()
	buf := r.codec.buffer()
	defer r.codec.scratch.Put(buf)
	raw, err := r.codec.pack.Read(&r.body, buf)
	if err != nil {
		return nil, &DecodeError{Key: r.Key(), Type: mine.typ, Err: err}
	}
	o, err := r.decode(t, raw, other)
	if err != nil {
		return nil, err
	}
	size = len(raw)
	v = &form{typ: t, obj: o, weak: weak.Make((*byte)(reflect.ValueOf(o).UnsafePointer()))}
	if h.detect {
		v.check = newMutationCheck(o)
	}
	return o, nil
}

// stillUsed returns the object as t if anybody has it; the caller holds the lock of the hot set.
func (r *Record) stillUsed(t reflect.Type) any {
	for v := r.forms.Load(); v != nil; v = v.next {
		if v.typ == t {
			if o := v.value(); o != nil {
				return o
			}
		}
	}
	return nil
}

// insert replaces the form of the same type; the caller holds h.mu.
func (h *hotSet) insert(r *Record, v *form, cost int64) {
	head := without(r.forms.Load(), v)
	v.next = head
	r.forms.Store(v)
	if h.limit < 0 || r.body.Retired() && cost > h.limit/2 {
		h.cool(r, v)
		return
	}
	h.bytes += cost
	h.ring = append(h.ring, hotEntry{rec: r, form: v, cost: cost})
	for h.bytes > h.limit && len(h.ring) > 1 {
		h.evict()
	}
}

// evict looks at one entry and lets it go, or gives it a second chance.
func (h *hotSet) evict() {
	if h.hand >= len(h.ring)-1 { // the newest is not looked at
		h.hand = 0
	}
	e := h.ring[h.hand]
	if e.form.used.Swap(false) && !e.rec.body.Retired() {
		h.hand++
		return
	}
	h.bytes -= e.cost
	last := len(h.ring) - 1
	h.ring[h.hand] = h.ring[last]
	h.ring[last] = hotEntry{}
	h.ring = h.ring[:last]
	h.cool(e.rec, e.form)
}

// cool replaces a form that holds its object by one that remembers it; the caller holds h.mu. Forms that readers may be
// looking at are never changed.
func (h *hotSet) cool(r *Record, v *form) {
	if v.check != nil {
		h.suspects = append(h.suspects, hotEntry{rec: r, form: v})
	}
	rest := without(r.forms.Load(), v)
	if v.weak.Value() == nil {
		r.forms.Store(rest)
		return
	}
	r.forms.Store(&form{next: rest, typ: v.typ, weak: v.weak, check: v.check})
}

// without returns a list without the forms of the type of v, and without those whose object is gone.
func without(list, v *form) *form {
	if list == nil {
		return nil
	}
	rest := without(list.next, v)
	if list.typ == v.typ || list.obj == nil && list.weak.Value() == nil {
		return rest
	}
	c := &form{next: rest, typ: list.typ, obj: list.obj, weak: list.weak, check: list.check}
	c.used.Store(list.used.Load())
	return c
}

// mutationCheck finds out whether a shared object was changed.
type mutationCheck struct {
	sum uint64
	bad atomic.Bool
}

var mutationSeed = maphash.MakeSeed()

func newMutationCheck(o any) *mutationCheck { return &mutationCheck{sum: fingerprint(o)} }

func fingerprint(o any) uint64 {
	b, err := json.Marshal(o)
	if err != nil {
		b = fmt.Append(nil, err)
	}
	return maphash.Bytes(mutationSeed, b)
}

// Verify looks whether a decoded form of the object was changed, if the store detects mutations, and reports it with
// the name of the reader that has just had it; "": nobody in particular.
func (r *Record) Verify(reader string) {
	for v := r.forms.Load(); v != nil; v = v.next {
		if v.check != nil {
			v.verify(r, reader)
		}
	}
}

// verify reports a changed object, once.
func (v *form) verify(r *Record, reader string) {
	o := v.value()
	if o == nil || fingerprint(o) == v.check.sum || v.check.bad.Swap(true) {
		return
	}
	c := r.codec
	c.hot.mutations.Add(1)
	if c.onMutation != nil {
		by := ""
		if reader != "" {
			by = " when " + reader + " had it"
		}
		c.onMutation(r.Key(), fmt.Errorf("a shared object of type %T was changed%s: copy it first", o, by))
		return
	}
	facts := []any{"key", r.Key(), "version", r.Version(), "type", fmt.Sprintf("%T", o)}
	if reader != "" {
		facts = append(facts, "reader", reader)
	}
	c.logger.Error("a shared object was changed by a reader", facts...)
}
