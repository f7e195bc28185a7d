package admission

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// declarations are the hooks and conversions of a program, and the mistakes in them. After seal, only mistakes are
// added. Methods are safe for concurrent use.
type declarations struct {
	log *slog.Logger
	// hold makes the sources of a kind wait until its conversion is served. It is called with the lock held.
	hold func(kind schema.GroupKind)

	mu         sync.Mutex // guards everything below
	sealed     bool       // Run has started
	mistakes   []error
	hooks      []*hook
	converters []*converter
}

// errSealed means that a declaration was made after the start of Run.
var errSealed = errors.New("the runtime has begun")

// addHook adds a hook. It records a mistake if there is one with the same name, or if Run has started.
func (d *declarations) addHook(k *hook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.hooks, func(o *hook) bool { return o.Name == k.Name }); i >= 0 {
		d.record(k.fail(fmt.Errorf("%w, at %s", errName, d.hooks[i].place)))
	}
	if d.sealed {
		d.record(k.fail(errSealed))
		return
	}
	d.hooks = append(d.hooks, k)
}

// addConversion adds the conversion between a version and the hub, unless err is a mistake in it. It records a mistake
// as fail returns it.
func (d *declarations) addConversion(
	at, version string, hub schema.GroupVersionKind, s *spoke, err error, fail func(error) error,
) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.join(at, version, hub, s, err); err != nil {
		d.record(fail(err))
	}
}

// join is addConversion without the record. The caller holds d.mu.
func (d *declarations) join(at, version string, hub schema.GroupVersionKind, s *spoke, err error) error {
	if d.sealed {
		return errSealed
	}
	if err != nil {
		return err
	}
	c := d.converterOf(at, hub)
	switch {
	case c.hub != hub.Version:
		return fmt.Errorf("%w: the hub is version %s, at %s", errInvalid, c.hub, c.place)
	case c.spokes[version] != nil:
		return fmt.Errorf("%w, at %s", errName, c.place)
	}
	c.spokes[version] = s
	return nil
}

// converterOf returns the converter of a kind, which it creates if necessary. The caller holds d.mu.
func (d *declarations) converterOf(at string, hub schema.GroupVersionKind) *converter {
	for _, c := range d.converters {
		if c.kind == hub.GroupKind() {
			return c
		}
	}
	c := &converter{place: at, kind: hub.GroupKind(), hub: hub.Version, spokes: map[string]*spoke{}}
	d.converters = append(d.converters, c)
	d.hold(c.kind)
	return c
}

// mistake records a mistake in a declaration. seal returns it; after seal it is logged as well.
func (d *declarations) mistake(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record(err)
}

// record is mistake for a caller that holds d.mu.
func (d *declarations) record(err error) {
	if d.sealed {
		d.log.Error("mistake in a declaration", "error", err)
	}
	d.mistakes = append(d.mistakes, err)
}

// seal ends the declarations and returns their mistakes.
func (d *declarations) seal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sealed = true
	errs := slices.Clone(d.mistakes)
	if len(d.hooks)+len(d.converters) == 0 {
		errs = append(errs, fmt.Errorf("%w: there are no hooks", errInvalid))
	}
	for _, c := range d.converters {
		errs = append(errs, c.check())
	}
	return errors.Join(errs...)
}

// all returns the hooks and the converters. They do not change after seal.
func (d *declarations) all() ([]*hook, []*converter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.hooks), slices.Clone(d.converters)
}
