package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/client"
)

// follow is a source that [Follow] added for one primary.
type follow struct {
	primary Key
	intake  *intake               // nil until it is open
	watch   atomic.Pointer[watch] // the latest declaration
}

// Follow makes the controller reconcile primary when an object of another kind changes. The source is for primary only,
// such as a namespace or a Secret that it names. It remains until primary is gone or [Controller.Unfollow] is called.
//
// A reconciler calls Follow each time, with the current references of its object. name identifies the source among
// those of primary. A new declaration under a name replaces the previous one; an equal one changes nothing. Existing
// objects lead to no reconciliation if another watch of the kind has already listed them: read them after Follow.
//
// The reconciler needs the [Controller] that [New] returned, in a field that is set before the host runs.
func Follow[S any, PS client.ObjectOf[S]](c *Controller, primary Key, name string, opts ...WatchOption) error {
	w := newWatch[S, PS](nil, append(opts[:len(opts):len(opts)], Named(name)))
	if err := c.follow(primary, name, w); err != nil {
		return fmt.Errorf("cannot follow %s for %s: %w", name, primary, err)
	}
	return nil
}

func (c *Controller) follow(primary Key, name string, w *watch) error {
	if c == nil {
		return errNotRunning
	}
	w.everySlot = c.slots != nil // the followed objects may be in any namespace
	before, running := c.following(primary, name)
	if !running {
		return errNotRunning
	}
	if err := errors.Join(w.check(), w.resolve(c.client.Scheme())); err != nil {
		return err
	}
	if before != nil {
		if same, err := c.continues(before, w); same || err != nil {
			return err
		}
	}
	f := &follow{primary: primary}
	f.watch.Store(w)
	c.mu.Lock()
	if c.follows[primary] == nil {
		c.follows[primary] = map[string]*follow{}
	}
	c.follows[primary][name] = f
	c.mu.Unlock()
	if before != nil {
		c.leave(before)
	}
	in, err := c.subscribe(w, subscription{follow: f})
	c.mu.Lock()
	wanted := c.follows[primary][name] == f // false if unfollowed or stopped meanwhile
	if err == nil && wanted {
		f.intake = in
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		c.Unfollow(primary, name)
	case !wanted:
		c.drop(in)
	}
	return err
}

// following returns the source of a name, or nil, and whether the controller runs.
func (c *Controller) following(primary Key, name string) (f *follow, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follows[primary][name], c.life != nil
}

// continues reports whether w declares the same source as f. If so, f uses the functions of w from now on. A source
// that is still being opened counts as the same.
func (c *Controller) continues(f *follow, w *watch) (bool, error) {
	c.mu.Lock()
	in := f.intake
	c.mu.Unlock()
	if in == nil {
		return true, nil
	}
	h, err := w.open(c.host.Cache())
	if err != nil {
		return false, fmt.Errorf("cannot watch %s: %w", w.name, err)
	}
	defer h.Release()
	if h.Store != in.handle.Store {
		return false, nil
	}
	f.watch.Store(w)
	return true, nil
}

// Unfollow removes a source that [Follow] added. It does nothing if there is no such source.
func (c *Controller) Unfollow(primary Key, name string) {
	c.mu.Lock()
	f := c.follows[primary][name]
	delete(c.follows[primary], name)
	if len(c.follows[primary]) == 0 {
		delete(c.follows, primary)
	}
	c.mu.Unlock()
	if f != nil {
		c.leave(f)
	}
}

// unfollowAll removes all sources of an object that is gone.
func (c *Controller) unfollowAll(primary Key) {
	c.mu.Lock()
	all := c.follows[primary]
	delete(c.follows, primary)
	c.mu.Unlock()
	for _, f := range all {
		c.leave(f)
	}
}

// leave closes a source that was removed. If the source is still being opened, the opener closes it.
func (c *Controller) leave(f *follow) {
	c.mu.Lock()
	in := f.intake
	c.mu.Unlock()
	if in != nil {
		c.drop(in)
	}
}

// drop closes a source.
func (c *Controller) drop(in *intake) {
	c.mu.Lock()
	i := slices.Index(c.intakes, in)
	if i >= 0 {
		c.intakes = slices.Delete(slices.Clone(c.intakes), i, i+1) // the pump may be reading the old slice
	}
	c.mu.Unlock()
	if i >= 0 { // otherwise Controller.close closes it
		in.drain.Close()
		in.handle.Release()
	}
}
