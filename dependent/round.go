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

// round looks once at a primary and its children, in the cache, and says what is to be done. It belongs to one fiber.
type round struct {
	nodes   []*node
	c       *client.Client
	manager string // owns what is applied
	log     *slog.Logger
	now     time.Time

	marks
	obj     any // the primary, as functions of the user take it
	known   *remembered
	poked   bool // somebody has asked for a look at what is external
	ending  bool // the primary is being deleted: nothing is wanted
	states  []*state
	tried   map[childKey]error // what was done in this round, and how it ended
	removed map[childKey]bool
	stale   []error // of children that nobody wants any more
}

// state is what a round knows of a node.
type state struct {
	*node
	decided bool // whether it is wanted is known
	wanted  bool
	asked   bool // what is desired is known, in wants
	err     error
	wants   []*want
	ours    []client.Object // of its kind, of the primary
	present int             // of them, those that are its own and not deleted
	blocked []string        // the nodes that it waits for
	hidden  bool            // what its children are to be depends on a node that is unknown
	status  NodeStatus
	until   time.Time // when to look again
}

// want is one child that is desired.
type want struct {
	key    client.Key
	obj    client.Object  // what is desired, with our marks
	fields map[string]any // of it, if they were asked for
	sum    sum
	is     client.Object // as it is; nil: it is not there
	ready  bool
	why    string // it is not ready
	unread bool   // the cache cannot tell how it is
	err    error
	until  time.Time
}

// look asks what is desired, compares it with what there is, and returns what is to be done now. It is called again
// when that was done, until nothing is left.
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

// kindKey names an object, in whatever version of its kind.
type kindKey struct {
	kind schema.GroupKind
	key  client.Key
}

// state returns that of a node, which comes before the one that asks.
func (r *round) state(n *node) *state { return r.states[n.index] }

// ask finds out whether a node is wanted, whether it has to wait, and what is desired.
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
		return // what is desired may depend on what they are, or will be
	}
	s.err = r.desire(ctx, s)
	s.asked = s.err == nil && len(s.blocked) == 0
}

// decide finds out whether a node is wanted: it is not, if one that it comes after is not, and it is not known, if that
// is not.
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

// desire asks what the children of a node are to be.
func (r *round) desire(ctx context.Context, s *state) error {
	all, err := guarded(func() ([]client.Object, error) { return s.desired(within(ctx, r), r.obj) })
	if err != nil {
		return r.fail("say what is desired of", s, client.Key{}, err)
	}
	wants := make([]*want, 0, len(all))
	for _, obj := range all {
		w, err := r.want(s, obj)
		if err != nil {
			return r.fail("say what is desired of", s, client.KeyOf(obj), err)
		}
		if slices.ContainsFunc(wants, func(o *want) bool { return o.key == w.key }) {
			return r.fail("say what is desired of", s, w.key, fmt.Errorf("%w: it is in the set twice", errUnfit))
		}
		wants = append(wants, w)
	}
	s.wants = wants
	return nil
}

// list finds the children of a primary that are of the kind of a node.
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
		if !ok { // unless somebody has just taken our mark off
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

// ownedElsewhere selects what has the label of its owner.
func ownedElsewhere(selected labels.Selector, primary client.Object) labels.Selector {
	is, err := labels.NewRequirement(labelOwner, selection.Equals, []string{string(primary.GetUID())})
	if err != nil { // a uid is no value of a label
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

// compare looks at one child and says what is to be done about it, nil if nothing is.
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
		w.why = "it is being deleted, and created when it is gone"
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

// leaving says whether the end of an object that is being deleted has to be asked for: nobody tells us that of what
// does not belong to the primary.
func (r *round) leaving(is client.Object) error {
	if r.isOwner(is) {
		return nil
	}
	return fmt.Errorf("%w, and is being deleted", ErrForeign)
}

// remembered returns what is known of this incarnation of a child; nil if nothing is.
func (r *round) remembered(at childKey, is client.Object) *child {
	if c := r.known.children[at]; c != nil && c.uid == is.GetUID() {
		return c
	}
	return nil
}

// mayTake says why an object that has the name of a child must not be written to.
func (r *round) mayTake(n *state, is client.Object, known *child) error {
	if _, ok := r.ours(is); ok || r.isOwner(is) {
		return nil
	}
	if err := r.owned(is); err != nil {
		return err
	}
	if known != nil || n.adopt { // somebody has taken our marks off it
		return nil
	}
	return ErrForeign
}

// holds says whether a child has all that is desired, and whether that is known.
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

// putRight applies a child that is not as it should be; with back-off, if somebody else contends for it.
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

// judge says whether a child is ready, and since when it is not.
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

// surplus says which children are to be deleted: those that are not wanted, in the reverse of the order in which they
// were created. Nothing is known of the children of nodes that have failed, or wait.
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

// sees says whether a node has an object among its children, perhaps as one of another version, or group, of whose
// caches one may be behind.
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

// mayGo says whether children of a node that are not wanted may be deleted now.
func (r *round) mayGo(s *state) bool {
	if s.err != nil || !s.asked {
		return false
	}
	return s.wanted || !slices.ContainsFunc(s.before, func(n *node) bool {
		other := r.state(n)
		return !other.wanted && (other.present > 0 || other.held(r))
	})
}

// unknown reports whether this round does not know how the children of a node are. They may exist.
func (s *state) unknown(r *round) bool {
	if s.external != nil {
		known := r.outside(s)
		return known == nil || known.failed
	}
	return s.err != nil || s.hidden || slices.ContainsFunc(s.wants, func(w *want) bool { return w.unread })
}

// allReady says whether nodes that come after one may begin.
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
