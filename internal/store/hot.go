package store

import (
	"math"
	"reflect"
	"runtime"
	"sync"
	"time"
)

// hotSet bounds the decoded objects that are held while they may be unused. Its hotRing decides which. Of several
// readers that need one object it lets one decode.
type hotSet struct {
	mutations *mutations

	mu       sync.Mutex                  // a leaf; also serializes changes of the forms of all records
	decoding map[decodeKey]chan struct{} // closed when the decoding ends; nil: no reader waits
	held     hotRing
	suspects []hotEntry // evicted; to be checked for mutations without the lock
	pace     pace
}

// decodeKey identifies a running decoding. Readers of the same form wait for it.
type decodeKey struct {
	rec *Record
	typ reflect.Type
}

const (
	defaultHotBytes = 32 << 20
	// decodedFactor is the rough ratio of the size of a decoded object to its encoded form.
	decodedFactor = 4
)

func (h *hotSet) init(limit int64, m *mutations) {
	h.mutations = m
	if h.held.limit = limit; limit == 0 {
		h.held.limit = defaultHotBytes
	}
}

// load returns the object of a record as a *T for t = T, which a reader still uses or decode makes. decode returns the
// size of the encoded object, too. It runs without the lock, and once for all readers that wait for the object.
func (h *hotSet) load(r *Record, t reflect.Type, decode func() (o any, size int, err error)) (any, error) {
	mine := decodeKey{r, t}
	h.mu.Lock()
	for {
		if o := h.reuse(r, t); o != nil {
			h.unlock()
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
			h.insert(r, v, h.held.ask(r.id.hash))
		}
		if waiting := h.decoding[mine]; waiting != nil {
			close(waiting)
		}
		delete(h.decoding, mine)
		yield := h.pace.add(size)
		h.unlock()
		if yield {
			runtime.Gosched()
		}
	}()
	o, n, err := decode()
	if err != nil {
		return nil, err
	}
	v, size = newForm(t, o), n
	v.cost = uint32(min(int64(size)*decodedFactor, math.MaxUint32))
	v.check = h.mutations.check(o)
	return o, nil
}

// reuse returns the object of a record that is held or still used, or nil. An object that is asked for again and again
// is held again. The caller holds h.mu.
func (h *hotSet) reuse(r *Record, t reflect.Type) any {
	v := r.forms.of(t)
	if v == nil {
		return nil
	}
	o := v.value()
	if o == nil || v.obj != nil || h.held.limit < 0 {
		return o
	}
	if heat := h.held.ask(r.id.hash); heat > 1 {
		h.insert(r, &form{typ: t, obj: o, weak: v.weak, cost: v.cost, check: v.check}, heat)
	}
	return o
}

// insert adds a form to its record and the hot set, and replaces the form of the same type. The caller holds h.mu.
func (h *hotSet) insert(r *Record, v *form, heat uint8) {
	r.forms.add(v)
	e := hotEntry{rec: r, form: v, heat: heat}
	if h.held.limit < 0 || r.isSuperseded() && e.cost() > h.held.limit/2 {
		h.cool(e)
		return
	}
	h.held.add(e, h.cool)
}

// cool makes a form hold its object weakly. The caller holds h.mu.
func (h *hotSet) cool(e hotEntry) {
	if e.form.check != nil {
		h.suspects = append(h.suspects, e)
	}
	e.rec.forms.weaken(e.form)
}

// unlock releases h.mu, and checks what was evicted for mutations.
func (h *hotSet) unlock() {
	suspects := h.suspects
	h.suspects = nil
	h.mu.Unlock()
	for _, e := range suspects {
		h.mutations.verify(&e.rec.header, e.form, "") // calls user code
	}
}

// pace says when readers let other goroutines run. A list of many objects that have to be decoded would otherwise delay
// them by a time slice of the Go scheduler. Plain data under hotSet.mu.
type pace struct {
	bytes int // decoded since began
	began time.Time
}

const (
	// yieldBytes is how much readers decode before one yields. It takes about 0.3 ms.
	yieldBytes = 64 << 10
	// timeSlice is the time after which the Go scheduler itself stops a goroutine.
	timeSlice = 10 * time.Millisecond
)

// add notes that so many encoded bytes were decoded, and reports whether the reader should yield. A yield wakes another
// processor, so readers that decode seldom do not yield.
func (p *pace) add(bytes int) bool {
	if p.bytes += bytes; p.bytes < yieldBytes {
		return false
	}
	now := time.Now()
	busy := now.Sub(p.began) < timeSlice
	p.bytes, p.began = 0, now
	return busy
}
