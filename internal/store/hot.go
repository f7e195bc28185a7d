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

// form is one decoded form of a record. In the hot set it holds the object. After that it holds the object weakly: an
// object that a reader still uses is found again, and an unused one is collected.
type form struct {
	next  *form
	typ   reflect.Type // T
	obj   any          // *T; nil when it is held weakly
	weak  weak.Pointer[byte]
	used  atomic.Bool // since the hot set last checked
	check *mutationCheck
}

// value returns the object of a form, a *T, or nil if it was collected.
func (v *form) value() any {
	if v.obj != nil {
		return v.obj
	}
	if p := v.weak.Value(); p != nil {
		return reflect.NewAt(v.typ, unsafe.Pointer(p)).Interface()
	}
	return nil
}

// read marks the object as used when a reader gets it. The form must hold the object.
func (v *form) read(r *Record) {
	if !v.used.Load() {
		v.used.Store(true)
	}
	if v.check != nil {
		v.verify(r, "")
	}
}

// hotSet bounds the decoded objects that are held while they may be unused. It is a clock with a second chance.
type hotSet struct {
	mu       sync.Mutex                  // also serializes changes of Record.forms
	decoding map[decodeKey]chan struct{} // closed when the decoding ends; nil: no reader waits
	limit    int64
	bytes    int64
	ring     []hotEntry
	suspects []hotEntry // evicted; to be checked for mutations without the lock
	hand     int

	detect    bool
	mutations atomic.Int64
}

// decodeKey identifies a running decoding. Readers of the same form wait for it.
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
	// decodedFactor is the rough ratio of the size of a decoded object to its encoded form.
	decodedFactor = 4
)

func (h *hotSet) init(limit int64, detect bool) {
	h.limit, h.detect = limit, detect
	if h.limit == 0 {
		h.limit = defaultHotBytes
	}
}

// asCold returns the object as a *T for t = T, from a weak pointer or by decoding. Of several concurrent readers one
// decodes. The object may share parts with other, another version, which may be nil.
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
	defer func() { // also if the decoder of a user's type panics
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
			e.form.verify(e.rec, "") // calls user code
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

// stillUsed returns the object as t if a reader still uses it. The caller holds the lock of the hot set.
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

// insert adds a form to its record and the hot set, and replaces the form of the same type. The caller holds h.mu.
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

// evict evicts the entry at the hand, or gives it a second chance.
func (h *hotSet) evict() {
	if h.hand >= len(h.ring)-1 { // the newest entry is skipped
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

// cool replaces a form that holds its object by one that holds it weakly. Forms that readers may use are never changed.
// The caller holds h.mu.
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

// without returns a list without the forms of the type of v and those whose object was collected.
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

// mutationCheck detects changes of a shared object.
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

// Verify checks whether a decoded form of the object was changed, if the store detects mutations, and reports a change.
// reader names the reader that had the object last; "" if it is not known.
func (r *Record) Verify(reader string) {
	for v := r.forms.Load(); v != nil; v = v.next {
		if v.check != nil {
			v.verify(r, reader)
		}
	}
}

// verify reports a changed object once.
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
		c.onMutation(r.Key(), fmt.Errorf("a reader changed a shared object of type %T%s: copy it first", o, by))
		return
	}
	facts := []any{"key", r.Key(), "version", r.Version(), "type", fmt.Sprintf("%T", o)}
	if reader != "" {
		facts = append(facts, "reader", reader)
	}
	c.logger.Error("a shared object was changed by a reader", facts...)
}
