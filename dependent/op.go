package dependent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

type verb uint8

const (
	verbApply verb = iota
	verbDelete
	verbOutside // read and update an external resource
	verbRelease // delete an external resource
)

// op is an operation on one child. It runs in its own fiber. Its result is read after that fiber has ended.
type op struct {
	by    *performer
	state *state
	want  *want
	at    childKey
	verb  verb
	drift bool // another client has changed the applied fields

	err      error
	answer   []byte // response of the API server to an apply
	replaced bool   // the child was deleted for a new one
	outside  any    // state of the external resource
	gone     bool   // the external resource was found to be gone
}

// name returns the name of the fiber.
func (o *op) name() string {
	if o.state.many || o.verb == verbDelete {
		return o.state.name + "[" + strings.ReplaceAll(o.want.key.String(), "/", ".") + "]"
	}
	return o.state.name
}

// run performs the operation. The op has the error.
func (o *op) run(ctx context.Context) {
	_, o.err = guarded(func() (struct{}, error) { return struct{}{}, o.by.perform(ctx, o) })
}

// performer sends the requests of operations. It is safe for concurrent use while no result is recorded.
type performer struct {
	c        *client.Client
	manager  string // field manager of applies
	marks    *marks
	known    *remembered
	attempts *attempts
}

// perform runs one operation, and writes its result into it.
func (p *performer) perform(ctx context.Context, o *op) error {
	switch o.verb {
	case verbDelete:
		return o.state.fail("delete", o.want.key, p.delete(ctx, o.state.node, o.want.is))
	case verbOutside:
		return o.state.fail("keep", client.Key{}, p.keep(ctx, o))
	case verbRelease:
		return o.state.fail("give back", client.Key{}, o.state.external.release(ctx, p.c, p.primary()))
	}
	return o.state.fail("apply", o.want.key, p.apply(ctx, o))
}

// primary returns a copy, since concurrent operations read the primary.
func (p *performer) primary() any { return p.marks.primary.DeepCopyObject() }

// keep creates or updates an external resource.
func (p *performer) keep(ctx context.Context, o *op) (err error) {
	var is any
	is, o.gone, err = o.state.external.keep(ctx, p.c, p.primary())
	if err == nil {
		o.outside = is
	}
	return err
}

// apply applies a child. If the cache does not have the child, a live read decides whether it may be written.
func (p *performer) apply(ctx context.Context, o *op) error {
	want, err := o.want.content()
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(want)}
	opts := []client.WriteOption{
		client.Owner(p.manager), client.Always(),
		writeoption.Answered(func(raw []byte) { o.answer = append(o.answer[:0], raw...) }),
	}
	is := o.want.is
	if is != nil {
		u.SetUID(is.GetUID())
	} else {
		live := o.state.fresh()
		switch err := p.c.Live().Get(ctx, o.want.key, live); {
		case apierrors.IsNotFound(err):
			opts = append(opts, writeoption.Absent())
		case err != nil:
			return err
		default:
			if err := p.marks.mayTake(live, o.state.adopt || p.known.entry(o.at, live) != nil); err != nil {
				return err
			}
			if live.GetDeletionTimestamp() != nil {
				return p.marks.refuseDeleted(live)
			}
			is = live
			u.SetResourceVersion(live.GetResourceVersion())
		}
	}
	if !o.state.noForce {
		opts = append(opts, client.Force())
	}
	err = p.c.Apply(ctx, u, opts...)
	if is == nil || !apierrors.IsInvalid(err) {
		return err
	}
	if !o.state.recreate || p.attempts.removed[o.at] {
		return fmt.Errorf("%w: %w", ErrImmutable, err)
	}
	return p.recreate(ctx, o, is, err)
}

// recreate deletes a child whose change was refused. The new child is created when the old one is gone. A dry run first
// checks that the API server would accept the new one.
func (p *performer) recreate(ctx context.Context, o *op, is client.Object, refused error) error {
	want, err := o.want.content()
	if err != nil {
		return err
	}
	try := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(want)}
	switch err := p.c.Create(ctx, try, client.DryRun(), client.Owner(p.manager)); {
	case err == nil, apierrors.IsAlreadyExists(err): // validation comes before the check for existence
	case apierrors.IsInvalid(err):
		return refused
	default:
		return err
	}
	o.replaced = true
	return p.delete(ctx, o.state.node, is)
}

// delete deletes a child, unless another object has its name now.
func (p *performer) delete(ctx context.Context, n *node, is client.Object) error {
	it := n.fresh()
	it.SetNamespace(is.GetNamespace())
	it.SetName(is.GetName())
	it.SetUID(is.GetUID())
	err := p.c.Delete(ctx, it, client.SameUID(), client.IgnoreNotFound(),
		client.Propagation(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) || errors.Is(err, client.ErrReplaced) {
		return nil
	}
	return err
}
