package reconcile

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/client"
)

// follow is a source that was added for one primary.
type follow struct {
	primary Key
	intake  *intake // nil until it is open
}

// Follow has an object reconciled when an object of another kind changes, from now until it is gone or [Controller.Unfollow] is
// called: a source that only this object needs, such as a namespace that it names. name tells the sources of one
// object apart; adding one that is there does nothing, so that a reconciler can call it each time. What exists already leads to
// no reconciliation if the kind is watched by others, too; read it after Follow.
func Follow[S any, PS client.ObjectOf[S]](c *Controller, primary Key, name string, opts ...WatchOption) error {
	if c == nil {
		return fmt.Errorf("cannot follow %s for %s: %w", name, primary, ErrNotRunning)
	}
	w := newWatch[S, PS](nil, append(opts[:len(opts):len(opts)], Named(name)))
	c.mu.Lock()
	if c.life == nil {
		c.mu.Unlock()
		return fmt.Errorf("cannot follow %s for %s: %w", name, primary, ErrNotRunning)
	}
	if c.follows[primary][name] != nil {
		c.mu.Unlock()
		return nil
	}
	f := &follow{primary: primary}
	if c.follows[primary] == nil {
		c.follows[primary] = map[string]*follow{}
	}
	c.follows[primary][name] = f
	c.mu.Unlock()

	err := errors.Join(w.check(), w.resolve(c.client.Scheme()))
	var in *intake
	if err == nil {
		in, err = c.subscribe(w, subscription{follow: f})
	}
	c.mu.Lock()
	wanted := c.follows[primary][name] == f // not unfollowed, or stopped, meanwhile
	if err == nil && wanted {
		f.intake = in
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		c.Unfollow(primary, name)
		return fmt.Errorf("cannot follow %s for %s: %w", name, primary, err)
	case !wanted:
		c.drop(in)
	}
	return nil
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
	if f != nil && f.intake != nil {
		c.drop(f.intake)
	}
}

// unfollowAll ends all sources of an object that is gone.
func (c *Controller) unfollowAll(primary Key) {
	c.mu.Lock()
	all := c.follows[primary]
	delete(c.follows, primary)
	c.mu.Unlock()
	for _, f := range all {
		if f.intake != nil {
			c.drop(f.intake)
		}
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
	if i >= 0 { // else close does it
		in.closed.Store(true)
		in.cursor.Close()
		in.handle.Release()
	}
}
