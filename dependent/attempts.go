package dependent

import "github.com/fairlead-io/fairlead/client"

// attempts are the operations of one round with their results. The next comparison repeats none of them.
type attempts struct {
	tried   map[childKey]error // the error, or nil for success
	removed map[childKey]bool  // children that this round has deleted
}

func newAttempts() attempts {
	return attempts{tried: map[childKey]error{}, removed: map[childKey]bool{}}
}

// result returns whether there was an operation on a child, and its error.
func (a *attempts) result(at childKey) (done bool, err error) {
	err, done = a.tried[at]
	return done, err
}

// add records the result of an operation. A child that was deleted for a new one counts as not tried: if it is already
// gone, this round creates the new one.
func (a *attempts) add(o *op) {
	a.tried[o.at] = o.err
	switch {
	case o.replaced && o.err == nil:
		a.removed[o.at] = true
		delete(a.tried, o.at)
	case o.verb == verbDelete:
		a.removed[o.at] = true
	}
}

// childKey identifies a child of a primary, or the external resource of a node with an empty key.
type childKey struct {
	node int
	key  client.Key
}
