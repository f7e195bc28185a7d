package observe

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// check returns all mistakes in the declarations, joined, or nil if they can be started.
func check(d *declarations) error {
	var errs []error
	for _, o := range d.origins {
		errs = append(errs, checkOrigin(d, o)...)
	}
	for _, o := range d.observers {
		errs = append(errs, checkObserver(d, o))
	}
	return errors.Join(errs...)
}

// checkOrigin returns the mistakes in the declaration of a source.
func checkOrigin(d *declarations, o *Origin) (errs []error) {
	mistake := func(err error) {
		errs = append(errs, &declarationError{What: "source", Selector: o.selector, Place: o.place, Err: err})
	}
	if o.selector == "" {
		mistake(errEmptySelector)
	}
	if o.nilFunc {
		mistake(errNilFunction)
	}
	if first := d.origin(o.selector); first != o {
		mistake(fmt.Errorf("%w: %s", ErrDuplicateSource, first.place))
	}
	if o.object != nil && o.kind.Empty() && o.derive == nil {
		if _, err := d.kindOf(o.object); err != nil {
			mistake(err)
		}
	}
	if err := o.settings.check(); err != nil {
		mistake(err)
	}
	if d.reaches(o, o, nil) {
		mistake(errCycle)
		return errs
	}
	for _, in := range o.inputs {
		if err := checkPair(d, in.selector, in.takes); err != nil {
			mistake(err)
		}
	}
	return errs
}

// checkObserver returns the mistakes in the declaration of an observer, joined.
func checkObserver(d *declarations, o *Observer) error {
	var errs []error
	mistake := func(err error) {
		errs = append(errs, &declarationError{What: "observer", Selector: o.selector, Place: o.place, Err: err})
	}
	if o.call == nil {
		mistake(errNilFunction)
	}
	if err := checkPair(d, o.selector, o.object); err != nil {
		mistake(err)
	}
	return errors.Join(errs...)
}

// checkPair returns the reason why an observer of this type cannot observe a selector. A nil type takes any objects.
func checkPair(d *declarations, s Selector, takes reflect.Type) error {
	if s == "" {
		return errEmptySelector
	}
	o := d.origin(s)
	if o == nil {
		return fmt.Errorf("%w%s", ErrNoSource, similarSource(d, s))
	}
	root, _ := d.resolve(o)
	if root == nil || takes == nil || takes == root.object || takes == metadataType || takes == unstructuredType {
		return nil // a filter without a source is reported at its own declaration
	}
	return fmt.Errorf("%w: it takes %v, and the source at %s delivers %v", errTypeMismatch, takes, root.place, root.object)
}

// similar returns the name of a source that shares a member with a selector without a source.
func similarSource(d *declarations, s Selector) string {
	for _, other := range d.origins {
		for _, name := range other.selector.names() {
			if slices.Contains(s.names(), name) {
				return fmt.Sprintf("; the source at %s is for %q, which is another set", other.place, other.selector)
			}
		}
	}
	return ""
}
