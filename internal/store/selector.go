package store

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/source"
)

// watchSelector decides which objects a watch selects, as far as that is possible from an object alone.
type watchSelector struct {
	labels    labels.Selector
	fields    fields.Selector
	values    map[string]FieldValue // of the fields that only some kinds have
	undecided bool                  // labels and fields alone do not decide
}

// parseSelectors prepares selectors for evaluation. field returns nil for a field that only the server can evaluate.
func parseSelectors(by source.Selectors, field func(label string) FieldValue) *watchSelector {
	sel := &watchSelector{values: map[string]FieldValue{}}
	var err error
	if sel.labels, err = labels.Parse(by.Label); err != nil {
		sel.labels, sel.undecided = labels.Everything(), true
	}
	if sel.fields, err = fields.ParseSelector(by.Field); err != nil {
		sel.fields, sel.undecided = fields.Everything(), true
	}
	for _, r := range sel.fields.Requirements() {
		if ofAnyObject(r.Field) {
			continue
		}
		value := field(r.Field)
		sel.values[r.Field] = value
		sel.undecided = sel.undecided || value == nil
	}
	return sel
}

// ofAnyObject reports whether a field can be selected for every kind.
func ofAnyObject(label string) bool { return label == "metadata.name" || label == "metadata.namespace" }

// evaluate returns the fields of an object that the selector uses.
func (sel *watchSelector) evaluate(object map[string]any) fields.Set {
	set := fields.Set{}
	for label, value := range sel.values {
		set[label] = value(object)
	}
	return set
}

// selects reports whether the watch selects an object. has is the result of evaluate. decided is false if only the
// server can tell.
func (sel *watchSelector) selects(r *Record, has fields.Set) (in, decided bool) {
	switch {
	case !sel.labels.Matches(r.Labels()):
		return false, true
	case sel.undecided:
		return false, false
	case sel.fields.Empty():
		return true, true
	}
	set := fields.Set{"metadata.name": r.Name(), "metadata.namespace": r.Namespace()}
	for label := range sel.values {
		value, ok := has[label]
		if !ok { // the selectors have changed meanwhile
			return false, false
		}
		set[label] = value
	}
	return sel.fields.Matches(set), true
}

// field returns the FieldValue of a field, or nil if only the server can evaluate it.
func (o *Options) field(label string) FieldValue {
	if value := o.Fields[label]; value != nil {
		return value
	}
	return fieldOf(o.Kind.GroupKind(), label)
}

// currentSelector decides which objects a watch selects, with the current selectors. Its pointer is replaced
// atomically; there is no lock.
type currentSelector struct {
	codec *codec
	opt   *Options
	now   atomic.Pointer[watchSelector]
}

// SetSelectors sets the selectors that the sources of the store use from now on; see source.Source.SetSelectors.
func (x *currentSelector) SetSelectors(sel source.Selectors) {
	x.now.Store(parseSelectors(sel, x.opt.field))
}

// selects is watchSelector.selects for the current selectors.
func (x *currentSelector) selects(r *Record, has fields.Set) (in, decided bool) {
	return x.now.Load().selects(r, has)
}

// Decides reports whether the store can decide which objects the watch selects, so that own writes are visible at once.
// It can without field selectors, and with fields of every kind, of built-in kinds or of Options.Fields. Otherwise it
// asks the server.
func (x *currentSelector) Decides() bool { return !x.now.Load().undecided }

// Selects reports whether the watch certainly selects the object of a record.
func (x *currentSelector) Selects(r *Record) bool {
	if r == nil {
		return false
	}
	in, decided := x.selects(r, nil)
	return in && decided
}

// parseAnswer makes a record of an answer. It also returns the fields for the selector, which it evaluates on the whole
// object, since the record may hold less. They are nil if they are not needed or cannot be read.
func (x *currentSelector) parseAnswer(enc source.Encoding, raw []byte) (*Record, fields.Set, error) {
	rec, err := x.codec.parse(enc, raw)
	if err != nil {
		return nil, nil, err
	}
	sel := x.now.Load()
	if sel.undecided || len(sel.values) == 0 {
		return rec, nil, nil
	}
	object, err := x.codec.decoder.wholeObject(encoded{enc, raw})
	if err != nil {
		x.codec.logger.Warn("cannot tell whether an own write is selected, asking the server", "key", rec.Key(),
			"error", err)
		return rec, nil, nil
	}
	var has fields.Set
	if p := protect.Call(func() { has = sel.evaluate(object) }); p != nil {
		x.codec.logger.Error("a function of a field panicked, asking the server", "key", rec.Key(), "panic", p)
	}
	return rec, has, nil
}
