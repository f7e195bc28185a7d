package reconcile

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/client"
)

// follow is a source that was added for one primary.
type follow struct {
	primary Key
	intake  *intake               // nil until it is open
	watch   atomic.Pointer[watch] // as it was declared last
}

// Follow has an object reconciled when an object of another kind changes, from now until it is gone or
// [Controller.Unfollow] is called: a source that only this object needs, such as a namespace, or a Secret, that it
// names. A reconciler calls it each time, with what the object says now: name tells the sources of one object apart,
// and what is followed under a name takes the place of what was before; where that is the same, nothing happens. What
// exists already leads to no reconciliation if the kind is watched by others, too; read it after Follow. The controller
// is what [New] has returned, for which a reconciler needs a field that is set before the host runs.
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
	w.everySlot = c.part != nil // it may be of any namespace
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
	wanted := c.follows[primary][name] == f // not unfollowed, or stopped, meanwhile
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

// following returns what is followed under a name, if anything, and whether the controller runs.
func (c *Controller) following(primary Key, name string) (f *follow, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.follows[primary][name], c.life != nil
}

// continues says whether a source is the one that w declares, whose functions it then has from now on. One that is
// being opened is.
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

// Unfollow ends what Follow began. It does nothing if there is no such source.
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

// unfollowAll ends all sources of an object that is gone.
func (c *Controller) unfollowAll(primary Key) {
	c.mu.Lock()
	all := c.follows[primary]
	delete(c.follows, primary)
	c.mu.Unlock()
	for _, f := range all {
		c.leave(f)
	}
}

// leave ends the source of what is followed no more. Who is opening it ends it, if it is not open yet.
func (c *Controller) leave(f *follow) {
	c.mu.Lock()
	in := f.intake
	c.mu.Unlock()
	if in != nil {
		c.drop(in)
	}
}

// drop ends a source.
func (c *Controller) drop(in *intake) {
	c.mu.Lock()
	i := slices.Index(c.intakes, in)
	if i >= 0 {
		c.intakes = slices.Delete(slices.Clone(c.intakes), i, i+1) // the pump may be reading it
	}
	c.mu.Unlock()
	if i >= 0 { // otherwise close does it
		in.drain.Close()
		in.handle.Release()
	}
}
