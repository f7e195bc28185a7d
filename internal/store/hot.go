package store

import (
	"reflect"
	"sync"
)

// hotSet bounds the decoded objects that are held while they may be unused. It is a clock with a second chance. Of
// several readers that need one object it lets one decode.
type hotSet struct {
	mutations *mutations

	mu       sync.Mutex                  // a leaf; also serializes changes of the forms of all records
	decoding map[decodeKey]chan struct{} // closed when the decoding ends; nil: no reader waits
	limit    int64
	bytes    int64
	ring     []hotEntry
	suspects []hotEntry // evicted; to be checked for mutations without the lock
	hand     int
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

func (h *hotSet) init(limit int64, m *mutations) {
	h.limit, h.mutations = limit, m
	if h.limit == 0 {
		h.limit = defaultHotBytes
	}
}

// load returns the object of a record as a *T for t = T, which a reader still uses or decode makes. decode returns the
// size of the encoded object, too. It runs without the lock, and once for all readers that wait for the object.
func (h *hotSet) load(r *Record, t reflect.Type, decode func() (o any, size int, err error)) (any, error) {
	mine := decodeKey{r, t}
	h.mu.Lock()
	for {
		if o := r.forms.value(t); o != nil {
			h.mu.Unlock()
			return o, nil
		}
		running, busy := h.decoding[mine]
		if !busy {
			break
		}
		if running == nil {
			running = make(chan struct{})
			h.decoding[mine] = running
		}
		h.mu.Unlock()
		<-running
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
			h.mutations.verify(&e.rec.header, e.form, "") // calls user code
		}
	}()
	o, size, err := decode()
	if err != nil {
		return nil, err
	}
	v = newForm(t, o)
	v.check = h.mutations.check(o)
	return o, nil
}

// insert adds a form to its record and the hot set, and replaces the form of the same type. The caller holds h.mu.
func (h *hotSet) insert(r *Record, v *form, cost int64) {
	r.forms.add(v)
	if h.limit < 0 || r.isSuperseded() && cost > h.limit/2 {
		h.cool(r, v)
		return
	}
	h.bytes += cost
	h.ring = append(h.ring, hotEntry{rec: r, form: v, cost: cost})
	for h.bytes > h.limit && len(h.ring) > 1 {
		h.evict()
	}
}

// evict evicts the entry at the hand, or gives it a second chance. The caller holds h.mu.
func (h *hotSet) evict() {
	if h.hand >= len(h.ring)-1 { // the newest entry is skipped
		h.hand = 0
	}
	e := h.ring[h.hand]
	if e.form.used.Swap(false) && !e.rec.isSuperseded() {
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

// cool makes a form hold its object weakly. The caller holds h.mu.
func (h *hotSet) cool(r *Record, v *form) {
	if v.check != nil {
		h.suspects = append(h.suspects, hotEntry{rec: r, form: v})
	}
	r.forms.weaken(v)
}
