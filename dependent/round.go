package dependent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fairlead-io/fairlead/client"
)

// round compares a primary and its children in the cache with the graph, and returns the operations that are due. It
// asks the nodes in their order, and creates and connects the parts. It belongs to one fiber and needs no lock.
type round struct {
	c         *client.Client
	log       *slog.Logger
	now       time.Time
	obj       any  // the primary, for functions of the user
	ending    bool // the primary is being deleted: no child is wanted
	marks     *marks
	known     *remembered
	attempts  *attempts
	children  comparer
	externals externals
	performer performer
	states    states
	stale     []error // errors of deletions of unwanted children
}

func newRound(nodes []*node, c *client.Client, m *marks, known *remembered, log *slog.Logger, now time.Time) *round {
	done := newAttempts()
	r := &round{
		c: c, log: log, now: now, marks: m, known: known, attempts: &done,
		children:  comparer{c: c, marks: m, known: known, attempts: &done, now: now},
		externals: externals{marks: m, known: known, attempts: &done, now: now},
		performer: performer{c: c, manager: c.FieldOwner(), marks: m, known: known, attempts: &done},
	}
	for _, n := range nodes {
		r.states = append(r.states, &state{node: n})
	}
	return r
}

// setPrimary replaces the primary by a newer version of it. obj is the same object as functions of the user see it.
func (r *round) setPrimary(primary client.Object, obj any) { r.marks.primary, r.obj = primary, obj }

// dueOps computes the desired children, compares them with the current ones, and returns the operations that are due.
// The fiber calls it again after these operations, until there are none.
func (r *round) dueOps(ctx context.Context) (todo []*op) {
	for _, s := range r.states {
		if s.external != nil {
			s.readOutside(r.known, r.marks.primary)
		}
	}
	wanted := map[kindKey]bool{}
	add := func(o *op) {
		if o != nil {
			o.by = &r.performer
			todo = append(todo, o)
		}
	}
	for _, s := range r.states {
		r.ask(ctx, s)
		if s.external != nil && !s.unwanted() {
			add(r.externals.compare(s))
		}
		for _, w := range s.wants {
			wanted[kindKey{s.kind.GroupKind(), w.key}] = true
			add(r.children.compare(ctx, s, w))
		}
	}
	for _, s := range r.states { // the children of all nodes are known by now
		if s.external != nil && s.unwanted() && r.mayDelete(s) {
			add(r.externals.release(s))
		}
	}
	for _, o := range r.surplus(wanted) {
		add(o)
	}
	return todo
}

// record records the results of an operation of dueOps, before the next call of dueOps.
func (r *round) record(o *op) {
	known := r.known.children[o.at]
	r.attempts.add(o)
	logChange(r.log, client.KeyOf(r.marks.primary), o, known)
	switch {
	case o.verb == verbOutside || o.verb == verbRelease:
		r.externals.record(o)
	case o.err != nil:
	case o.replaced || o.verb == verbDelete:
		delete(r.known.children, o.at)
	case o.answer != nil:
		if err := r.known.learn(o, r.performer.manager, r.now); err != nil {
			r.attempts.tried[o.at] = o.state.fail("read the answer about", o.want.key, err)
		}
	}
}

// kindKey identifies an object independently of the version of its kind.
type kindKey struct {
	kind schema.GroupKind
	key  client.Key
}

// ask determines whether a node is wanted, whether it is blocked, and which children are desired.
func (r *round) ask(ctx context.Context, s *state) {
	s.until = time.Time{}
	s.blocked, s.hidden = nil, false
	if s.external == nil {
		s.children, s.present, s.lacks = nil, 0, ""
		if err := r.list(ctx, s); err != nil {
			if s.lacks = s.unavailable(err); s.lacks == "" {
				s.err = err
				return
			}
			s.wants, s.asked = nil, false
		}
	}
	if s.asked || s.err != nil {
		return
	}
	if s.err = s.fail("decide about", client.Key{}, r.decide(ctx, s)); s.err != nil {
		return
	}
	if s.decided && !s.wanted {
		s.asked = true
		return
	}
	for _, a := range s.after {
		before := r.states.of(a)
		if !before.allReady() {
			s.blocked = append(s.blocked, a.name)
		}
		s.hidden = s.hidden || before.unknown()
	}
	if s.external != nil {
		s.asked = len(s.blocked) == 0
		return
	}
	if !s.decided || s.hidden || s.lacks != "" || len(s.blocked) > 0 && s.present == 0 {
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
		before := r.states.of(a)
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
	all, err := guarded(func() ([]client.Object, error) { return s.desired(withStates(ctx, r.states), r.obj) })
	if err != nil {
		return s.fail("compute the desired state of", client.Key{}, err)
	}
	wants := make([]*want, 0, len(all))
	for _, obj := range all {
		w, err := newWant(r.marks, r.c.Mapper(), s.node, obj)
		if err != nil {
			return s.fail("compute the desired state of", client.KeyOf(obj), err)
		}
		if slices.ContainsFunc(wants, func(o *want) bool { return o.key == w.key }) {
			return s.fail("compute the desired state of", w.key, fmt.Errorf("%w: it is in the set twice", errUnfit))
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
	owned, err := s.list(ctx, r.c, client.OwnedBy(r.marks.primary), client.Matching(selected))
	if err == nil && s.elsewhere {
		var others []client.Object
		others, err = s.list(ctx, r.c, client.Matching(ownedElsewhere(selected, r.marks.primary)))
		owned = append(owned, others...)
	}
	if err != nil {
		return s.fail("list", client.Key{}, err)
	}
	for _, obj := range owned {
		node, ok := r.marks.ours(obj)
		if !ok { // unless another client has just removed our mark
			if r.known.entry(childKey{s.index, client.KeyOf(obj)}, obj) == nil {
				continue
			}
			node = s.name
		}
		s.children = append(s.children, obj)
		if node == s.name && !s.isDeleted(obj) {
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

// surplus returns deletions of unwanted children, in the reverse order of creation. Children of nodes that have failed
// or wait are kept, since the desired ones are not known.
func (r *round) surplus(wanted map[kindKey]bool) (todo []*op) {
	r.stale = nil
	seen := map[kindKey]bool{}
	for _, s := range slices.Backward(r.states) {
		for _, obj := range s.children {
			k := kindKey{s.kind.GroupKind(), client.KeyOf(obj)}
			if wanted[k] || seen[k] {
				continue
			}
			name, ok := r.marks.ours(obj)
			if !ok {
				name = s.name
			}
			of := r.named(name)
			if of != nil && of != s && r.sees(of, obj) {
				continue
			}
			seen[k] = true
			at := childKey{s.index, k.key}
			if _, err := r.attempts.result(at); err != nil {
				r.stale = append(r.stale, err)
				continue
			}
			if obj.GetDeletionTimestamp() != nil || r.attempts.removed[at] || of != nil && !r.mayDelete(of) {
				continue
			}
			todo = append(todo, &op{state: s, want: &want{key: k.key, is: obj}, at: at, verb: verbDelete})
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
	return slices.ContainsFunc(s.children, func(o client.Object) bool { return o.GetUID() == obj.GetUID() })
}

func (r *round) named(name string) *state {
	i := slices.IndexFunc(r.states, func(s *state) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return r.states[i]
}

// mayDelete reports whether unwanted children of a node may be deleted now.
func (r *round) mayDelete(s *state) bool {
	if s.err != nil || !s.asked {
		return false
	}
	return s.wanted || !slices.ContainsFunc(s.before, func(n *node) bool {
		other := r.states.of(n)
		return !other.wanted && (other.present > 0 || other.slot)
	})
}
