package store

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"reflect"
	"sync/atomic"
	"unsafe"
	"weak"
)

// form is one decoded form of a record. In the hot set it holds the object. After that it holds the object weakly: an
// object that a reader still uses is found again, and an unused one is collected. Only used changes.
type form struct {
	next  *form
	typ   reflect.Type // T
	obj   any          // *T; nil when it is held weakly
	weak  weak.Pointer[byte]
	used  atomic.Bool // since the hot set last checked
	cost  uint32      // estimated size of the object in bytes
	check *mutationCheck
}

func newForm(t reflect.Type, obj any) *form {
	return &form{typ: t, obj: obj, weak: weak.Make((*byte)(reflect.ValueOf(obj).UnsafePointer()))}
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

// forms are the decoded forms of one record, at most one for each type. Readers take no lock. The hot set makes all
// changes, under its lock.
type forms struct{ first atomic.Pointer[form] }

// list returns the first form; the others follow by next.
func (f *forms) list() *form { return f.first.Load() }

// held returns the form of a type that holds its object, or nil.
func (f *forms) held(t reflect.Type) *form {
	for v := f.first.Load(); v != nil; v = v.next {
		if v.typ == t && v.obj != nil {
			return v
		}
	}
	return nil
}

// of returns the form of a type, or nil.
func (f *forms) of(t reflect.Type) *form {
	for v := f.first.Load(); v != nil; v = v.next {
		if v.typ == t {
			return v
		}
	}
	return nil
}

// value returns the object of a type that is held or still used, or nil.
func (f *forms) value(t reflect.Type) any {
	if v := f.of(t); v != nil {
		return v.value()
	}
	return nil
}

// Shares reports whether obj is the decoded object that all readers of the record share, and that must not be changed.
func (f *forms) Shares(obj any) bool {
	for v := f.first.Load(); v != nil; v = v.next {
		if o := v.value(); o != nil && o == obj {
			return true
		}
	}
	return false
}

// add adds a form, and replaces the one of the same type.
func (f *forms) add(v *form) {
	v.next = without(f.first.Load(), v)
	f.first.Store(v)
}

// weaken replaces a form that holds its object by one that holds it weakly. Forms that readers may use are never
// changed.
func (f *forms) weaken(v *form) {
	rest := without(f.first.Load(), v)
	if v.weak.Value() == nil {
		f.first.Store(rest)
		return
	}
	f.first.Store(&form{next: rest, typ: v.typ, weak: v.weak, cost: v.cost, check: v.check})
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
	c := &form{next: rest, typ: list.typ, obj: list.obj, weak: list.weak, cost: list.cost, check: list.check}
	c.used.Store(list.used.Load())
	return c
}

// mutations finds shared objects that a reader has changed. Its state are counters.
type mutations struct {
	enabled bool
	report  func(Key, error) // nil: it is logged
	logger  *slog.Logger
	count   atomic.Int64
}

// mutationCheck detects changes of a shared object.
type mutationCheck struct {
	sum uint64
	bad atomic.Bool
}

var mutationSeed = maphash.MakeSeed()

// check returns the check of a new object, or nil if mutations are not detected.
func (m *mutations) check(o any) *mutationCheck {
	if !m.enabled {
		return nil
	}
	return &mutationCheck{sum: fingerprint(o)}
}

func fingerprint(o any) uint64 {
	b, err := json.Marshal(o)
	if err != nil {
		b = fmt.Append(nil, err)
	}
	return maphash.Bytes(mutationSeed, b)
}

// verify reports a changed object once. It calls user code. The form has a check.
func (m *mutations) verify(of *header, v *form, reader string) {
	o := v.value()
	if o == nil || fingerprint(o) == v.check.sum || v.check.bad.Swap(true) {
		return
	}
	m.count.Add(1)
	if m.report != nil {
		by := ""
		if reader != "" {
			by = " when " + reader + " had it"
		}
		m.report(of.Key(), fmt.Errorf("a reader changed a shared object of type %T%s: copy it first", o, by))
		return
	}
	facts := []any{"key", of.Key(), "version", of.Version(), "type", fmt.Sprintf("%T", o)}
	if reader != "" {
		facts = append(facts, "reader", reader)
	}
	m.logger.Error("a shared object was changed by a reader", facts...)
}
