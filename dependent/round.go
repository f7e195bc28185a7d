package dependent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fairlead-io/fairlead/client"
)

// round compares a primary and its children in the cache with the graph, and returns the operations that are due. It
// belongs to one fiber.
type round struct {
	nodes   []*node
	c       *client.Client
	manager string // field manager of applies
	log     *slog.Logger
	now     time.Time

	marks
	obj     any // the primary, for functions of the user
	known   *remembered
	poked   bool // external resources must be read
	ending  bool // the primary is being deleted: no child is wanted
	states  []*state
	tried   map[childKey]error // operations of this round, with their errors
	removed map[childKey]bool
	stale   []error // errors of deletions of unwanted children
}

// state is the state of a node in a round.
type state struct {
	*node
	decided bool // wanted is valid
	wanted  bool
	asked   bool // wants is complete, and the node is not blocked
	err     error
	wants   []*want
	ours    []client.Object // children of the primary of this kind
	present int             // number of those of this node that do not count as deleted
	blocked []string        // names of the nodes that it waits for
	hidden  bool            // its children depend on a node whose state is unknown
	status  NodeStatus
	until   time.Time // when to look again
}

// want is one desired child.
type want struct {
	key    client.Key
	obj    client.Object  // the desired object, with marks
	fields map[string]any // its content; nil until first used
	sum    sum
	is     client.Object // the current object; nil if there is none
	ready  bool
	why    string // why it is not ready
	unread bool   // the cache could not be read
	err    error
	until  time.Time
}

// look computes the desired children, compares them with the current ones, and returns the operations that are due. The
// fiber calls it again after these operations, until there are none.
func (r *round) look(ctx context.Context) (todo []*op) {
	if r.states == nil {
		for _, n := range r.nodes {
			r.states = append(r.states, &state{node: n})
		}
	}
	wanted := map[kindKey]bool{}
	for _, s := range r.states {
		r.ask(ctx, s)
		if s.external != nil {
			todo = append(todo, r.lookOutside(s)...)
			continue
		}
		for _, w := range s.wants {
			wanted[kindKey{s.kind.GroupKind(), w.key}] = true
			if o := r.compare(ctx, s, w); o != nil {
				todo = append(todo, o)
			}
		}
	}
	return append(todo, r.surplus(wanted)...)
}

// kindKey identifies an object independently of the version of its kind.
type kindKey struct {
	kind schema.GroupKind
	key  client.Key
}

// state returns the state of a node.
func (r *round) state(n *node) *state { return r.states[n.index] }

// ask determines whether a node is wanted, whether it is blocked, and which children are desired.
func (r *round) ask(ctx context.Context, s *state) {
	s.until = time.Time{}
	s.blocked, s.hidden = nil, false
	if s.external == nil {
		s.ours, s.present = nil, 0
		if err := r.list(ctx, s); err != nil {
			s.err = err
			return
		}
	}
	if s.asked || s.err != nil {
		return
	}
	if s.err = r.fail("decide about", s, client.Key{}, r.decide(ctx, s)); s.err != nil {
		return
	}
	if s.decided && !s.wanted {
		s.asked = true
		return
	}
	for _, a := range s.after {
		before := r.state(a)
		if !before.allReady() {
			s.blocked = append(s.blocked, a.name)
		}
		s.hidden = s.hidden || before.unknown(r)
	}
	if s.external != nil {
		s.asked = len(s.blocked) == 0
		return
	}
	if !s.decided || s.hidden || len(s.blocked) > 0 && s.present == 0 {
		return // the desired children may depend on nodes that are not ready
	}
	s.err = r.desire(ctx, s)
	s.asked = s.err == nil && len(s.blocked) == 0
}

// decide determines whether a node is wanted. It is not if a node that it comes after is not. It is undecided if such a
// node is undecided.
func (r *round) decide(ctx context.Context, s *state) error {
	s.decided, s.wanted = false, false
	known := true
	for _, a := range s.after {
		before := r.state(a)
		if before.decided && !before.wanted {
			s.decided = true
			return nil
		}
		known = known && before.decided
	}
	if r.ending || !known {
		s.decided = r.ending
		return nil
	}
	for _, wanted := range s.node.wanted {
		ok, err := guarded(func() (bool, error) { return wanted(ctx, r.obj) })
		if err != nil {
			return err
		}
		if !ok {
			s.decided = true
			return nil
		}
	}
	s.decided, s.wanted = true, true
	return nil
}

// desire calls the function of a node and checks the desired children.
func (r *round) desire(ctx context.Context, s *state) error {
	all, err := guarded(func() ([]client.Object, error) { return s.desired(within(ctx, r), r.obj) })
	if err != nil {
		return r.fail("compute the desired state of", s, client.Key{}, err)
	}
	wants := make([]*want, 0, len(all))
	for _, obj := range all {
		w, err := r.want(s, obj)
		if err != nil {
			return r.fail("compute the desired state of", s, client.KeyOf(obj), err)
		}
		if slices.ContainsFunc(wants, func(o *want) bool { return o.key == w.key }) {
			return r.fail("compute the desired state of", s, w.key, fmt.Errorf("%w: it is in the set twice", errUnfit))
		}
		wants = append(wants, w)
	}
	s.wants = wants
	return nil
}

// list finds the children of a primary that have the kind of a node.
func (r *round) list(ctx context.Context, s *state) error {
	selected := labels.Everything()
	if s.labels != nil {
		selected = s.labels
	}
	owned, err := s.list(ctx, r.c, client.OwnedBy(r.primary), client.Matching(selected))
	if err == nil && s.elsewhere {
		var others []client.Object
		others, err = s.list(ctx, r.c, client.Matching(ownedElsewhere(selected, r.primary)))
		owned = append(owned, others...)
	}
	if err != nil {
		return r.fail("list", s, client.Key{}, err)
	}
	for _, obj := range owned {
		node, ok := r.ours(obj)
		if !ok { // unless another client has just removed our mark
			if r.remembered(childKey{s.index, client.KeyOf(obj)}, obj) == nil {
				continue
			}
			node = s.name
		}
		s.ours = append(s.ours, obj)
		if node == s.name && !r.isDeleted(s, obj) {
			s.present++
		}
	}
	return nil
}

// ownedElsewhere selects objects by the label of their owner.
func ownedElsewhere(selected labels.Selector, primary client.Object) labels.Selector {
	is, err := labels.NewRequirement(labelOwner, selection.Equals, []string{string(primary.GetUID())})
	if err != nil { // the uid is not a valid label value
		return labels.Nothing()
	}
	return selected.Add(*is)
}

func (r *round) isDeleted(s *state, obj client.Object) bool {
	if obj.GetDeletionTimestamp() == nil || s.deleted == nil {
		return false
	}
	ok, err := guarded(func() (bool, error) { return s.deleted(obj), nil })
	return ok && err == nil
}

// compare compares one child and returns the operation that is due, or nil.
func (r *round) compare(ctx context.Context, s *state, w *want) *op {
	at := childKey{s.index, w.key}
	w.ready, w.why, w.unread, w.until = false, "", false, time.Time{}
	obj, err := s.get(ctx, r.c, w.key)
	switch {
	case apierrors.IsNotFound(err):
		w.is = nil
	case err != nil:
		w.err, w.unread = r.fail("read", s, w.key, err), true
		return nil
	default:
		w.is = obj
	}
	if err, done := r.tried[at]; done {
		if w.err = err; err != nil {
			return nil
		}
	}
	if w.is == nil {
		if _, done := r.tried[at]; done || len(s.blocked) > 0 {
			w.why = "it does not exist yet"
			return nil
		}
		return &op{round: r, state: s, want: w, at: at, verb: verbApply}
	}
	if w.is.GetDeletionTimestamp() != nil {
		w.err = r.fail("apply", s, w.key, r.leaving(w.is))
		w.why = "it is being deleted and will be created again"
		return nil
	}
	known := r.remembered(at, w.is)
	if err := r.mayTake(s, w.is, known); err != nil {
		w.err = r.fail("apply", s, w.key, err)
		return nil
	}
	holds, err := known.holds(w)
	if err != nil {
		w.err = r.fail("compare", s, w.key, err)
		return nil
	}
	if _, done := r.tried[at]; !holds && !done {
		if o := r.putRight(s, w, known, at); o != nil {
			return o
		}
	}
	r.judge(s, w, known)
	return nil
}

// leaving returns an error for an object that is being deleted and does not belong to the primary. No watch reports its
// end to the primary, so the controller must retry.
func (r *round) leaving(is client.Object) error {
	if r.isOwner(is) {
		return nil
	}
	return fmt.Errorf("%w, and is being deleted", ErrForeign)
}

// remembered returns the entry of this incarnation of a child; nil if there is none.
func (r *round) remembered(at childKey, is client.Object) *child {
	if c := r.known.children[at]; c != nil && c.uid == is.GetUID() {
		return c
	}
	return nil
}

// mayTake returns an error if an object with the name of a child must not be written.
func (r *round) mayTake(n *state, is client.Object, known *child) error {
	if _, ok := r.ours(is); ok || r.isOwner(is) {
		return nil
	}
	if err := r.owned(is); err != nil {
		return err
	}
	if known != nil || n.adopt { // another client has removed our marks, or Adopt allows it
		return nil
	}
	return ErrForeign
}

// holds reports whether a child is known to have all desired fields.
func (c *child) holds(w *want) (bool, error) {
	if c == nil || c.want != w.sum {
		return false, nil
	}
	if c.seen == w.is.GetResourceVersion() {
		return true, nil
	}
	is, err := content(w.is)
	if err != nil {
		return false, err
	}
	want, err := w.content()
	if err != nil {
		return false, err
	}
	has, err := sumOwned(c.fields.Value(), is, want)
	if err != nil || has != c.has {
		return false, err
	}
	c.seen = w.is.GetResourceVersion()
	return true, nil
}

// putRight returns an apply for a child that is not as desired. If another client contends for the child, it applies
// with back-off.
func (r *round) putRight(s *state, w *want, known *child, at childKey) *op {
	o := &op{round: r, state: s, want: w, at: at, verb: verbApply}
	if known == nil || known.want != w.sum {
		return o
	}
	o.drift = true
	if known.again >= patience && r.now.Sub(known.applied) < contentionWindow {
		w.err = r.fail("apply", s, w.key, ErrContended)
		if at := known.applied.Add(known.pause()); r.now.Before(at) {
			w.until = at
			return nil
		}
	}
	return o
}

// judge determines whether a child is ready, and since when it is not.
func (r *round) judge(s *state, w *want, known *child) {
	ok, err := guarded(func() (bool, error) { return s.ready(w.is), nil })
	if err != nil {
		w.err = r.fail("judge", s, w.key, err)
		return
	}
	if w.ready = ok; ok {
		if known != nil {
			known.since = time.Time{}
		}
		return
	}
	w.why = "it is not ready"
	if s.timeout == 0 || known == nil {
		return
	}
	if known.since.IsZero() {
		if created := w.is.GetCreationTimestamp(); w.is.GetGeneration() <= 1 && !created.IsZero() {
			known.since = created.Time
		} else {
			known.since = r.now
		}
	}
	if late := known.since.Add(s.timeout); r.now.Before(late) {
		w.until = late
	} else if w.err == nil {
		w.why = ""
		w.err = r.fail("wait for", s, w.key, fmt.Errorf("%w (%v)", ErrNotReady, s.timeout))
	}
}

// surplus returns deletions of unwanted children, in the reverse order of creation. Children of nodes that have failed
// or wait are kept, since the desired ones are not known.
func (r *round) surplus(wanted map[kindKey]bool) (todo []*op) {
	r.stale = nil
	seen := map[kindKey]bool{}
	for _, s := range slices.Backward(r.states) {
		for _, obj := range s.ours {
			k := kindKey{s.kind.GroupKind(), client.KeyOf(obj)}
			if wanted[k] || seen[k] {
				continue
			}
			name, ok := r.ours(obj)
			if !ok {
				name = s.name
			}
			of := r.named(name)
			if of != nil && of != s && r.sees(of, obj) {
				continue
			}
			seen[k] = true
			at := childKey{s.index, k.key}
			if err := r.tried[at]; err != nil {
				r.stale = append(r.stale, err)
				continue
			}
			if obj.GetDeletionTimestamp() != nil || r.removed[at] || of != nil && !r.mayGo(of) {
				continue
			}
			todo = append(todo, &op{round: r, state: s, want: &want{key: k.key, is: obj}, at: at, verb: verbDelete})
		}
	}
	return todo
}

// sees reports whether a node has an object among its children. The node may read it in another version or group, whose
// cache may be behind.
func (r *round) sees(s *state, obj client.Object) bool {
	for at, c := range r.known.children {
		if at.node == s.index && c.uid == obj.GetUID() {
			return true
		}
	}
	return slices.ContainsFunc(s.ours, func(o client.Object) bool { return o.GetUID() == obj.GetUID() })
}

func (r *round) named(name string) *state {
	i := slices.IndexFunc(r.states, func(s *state) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return r.states[i]
}

// mayGo reports whether unwanted children of a node may be deleted now.
func (r *round) mayGo(s *state) bool {
	if s.err != nil || !s.asked {
		return false
	}
	return s.wanted || !slices.ContainsFunc(s.before, func(n *node) bool {
		other := r.state(n)
		return !other.wanted && (other.present > 0 || other.held(r))
	})
}

// unknown reports whether this round does not know the state of the children of a node. They may exist.
func (s *state) unknown(r *round) bool {
	if s.external != nil {
		known := r.outside(s)
		return known == nil || known.failed
	}
	return s.err != nil || s.hidden || slices.ContainsFunc(s.wants, func(w *want) bool { return w.unread })
}

// allReady reports whether the nodes that come after this one may begin.
func (s *state) allReady() bool {
	if s.err != nil || !s.wanted || !s.asked {
		return false
	}
	if s.external != nil {
		return s.status.State == StateReady
	}
	return !slices.ContainsFunc(s.wants, func(w *want) bool { return !w.ready })
}

func (r *round) fail(op string, s *state, k client.Key, err error) error {
	var done *ChildError
	if err == nil || errors.As(err, &done) {
		return err
	}
	return &ChildError{Node: s.name, Kind: s.kind, Key: k, Op: op, Err: err}
}
