package dependent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

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
	round *round
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

func (o *op) run(ctx context.Context) {
	_, o.err = guarded(func() (struct{}, error) {
		switch o.verb {
		case verbDelete:
			return struct{}{}, o.round.fail("delete", o.state, o.want.key, o.delete(ctx))
		case verbOutside, verbRelease:
			return struct{}{}, o.runOutside(ctx)
		}
		return struct{}{}, o.round.fail("apply", o.state, o.want.key, o.apply(ctx))
	})
}

// apply applies a child. If the cache does not have the child, a live read decides whether it may be written.
func (o *op) apply(ctx context.Context) error {
	r, c := o.round, o.round.c
	want, err := o.want.content()
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(want)}
	opts := []client.WriteOption{
		client.Owner(r.manager), client.Always(),
		writeoption.Answered(func(raw []byte) { o.answer = append(o.answer[:0], raw...) }),
	}
	is := o.want.is
	if is != nil {
		u.SetUID(is.GetUID())
	} else {
		live := o.state.fresh()
		switch err := c.Live().Get(ctx, o.want.key, live); {
		case apierrors.IsNotFound(err):
			opts = append(opts, writeoption.Absent())
		case err != nil:
			return err
		default:
			if err := r.mayTake(o.state, live, r.remembered(o.at, live)); err != nil {
				return err
			}
			if live.GetDeletionTimestamp() != nil {
				return r.leaving(live)
			}
			is = live
			u.SetResourceVersion(live.GetResourceVersion())
		}
	}
	if !o.state.noForce {
		opts = append(opts, client.Force())
	}
	err = c.Apply(ctx, u, opts...)
	if is == nil || !apierrors.IsInvalid(err) {
		return err
	}
	if !o.state.recreate || r.removed[o.at] {
		return fmt.Errorf("%w: %w", ErrImmutable, err)
	}
	return o.recreate(ctx, is, err)
}

// recreate deletes a child whose change was refused. The new child is created when the old one is gone. A dry run first
// checks that the API server would accept the new one.
func (o *op) recreate(ctx context.Context, is client.Object, refused error) error {
	want, err := o.want.content()
	if err != nil {
		return err
	}
	try := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(want)}
	switch err := o.round.c.Create(ctx, try, client.DryRun(), client.Owner(o.round.manager)); {
	case err == nil, apierrors.IsAlreadyExists(err): // validation comes before the check for existence
	case apierrors.IsInvalid(err):
		return refused
	default:
		return err
	}
	o.replaced = true
	return o.remove(ctx, is)
}

func (o *op) delete(ctx context.Context) error { return o.remove(ctx, o.want.is) }

func (o *op) remove(ctx context.Context, is client.Object) error {
	it := o.state.fresh()
	it.SetNamespace(is.GetNamespace())
	it.SetName(is.GetName())
	it.SetUID(is.GetUID())
	err := o.round.c.Delete(ctx, it, client.SameUID(), client.IgnoreNotFound(),
		client.Propagation(metav1.DeletePropagationBackground))
	if apierrors.IsConflict(err) || errors.Is(err, client.ErrReplaced) { // another object has its name now
		return nil
	}
	return err
}

// done records the result of the op.
func (o *op) done() {
	r := o.round
	r.tried[o.at] = o.err
	o.log()
	switch {
	case o.replaced && o.err == nil:
		r.removed[o.at] = true
		delete(r.tried, o.at) // if the old child is already gone, this round creates the new one
		delete(r.known.children, o.at)
	case o.verb == verbDelete:
		r.removed[o.at] = true
		if o.err == nil {
			delete(r.known.children, o.at)
		}
	case o.verb != verbApply:
		o.doneOutside()
	case o.err == nil && o.answer != nil:
		if err := o.remember(); err != nil {
			r.tried[o.at] = r.fail("read the answer about", o.state, o.want.key, err)
		}
	}
}

// log logs a successful change of a child; the controller logs failures.
func (o *op) log() {
	if o.err != nil || o.verb != verbDelete && o.verb != verbApply {
		return
	}
	what := "child deleted"
	switch known := o.round.known.children[o.at]; {
	case o.replaced:
		what = "child deleted to be recreated"
	case o.verb == verbDelete:
	case o.answer == nil:
		return
	case o.drift:
		what = "child corrected: another writer had changed it"
	case o.want.is == nil:
		what = "child created"
	case known != nil:
		what = "child changed"
	default:
		what = "child applied to learn its owned fields"
	}
	o.round.log.Info(what, "key", client.KeyOf(o.round.primary), "node", o.state.name, "kind", o.state.kind.Kind,
		"child", o.want.key)
}

// remember records the applied object and the values that the API server stored.
func (o *op) remember() error {
	r := o.round
	var head struct {
		Metadata struct {
			UID             types.UID                   `json:"uid"`
			ResourceVersion string                      `json:"resourceVersion"`
			ManagedFields   []metav1.ManagedFieldsEntry `json:"managedFields"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(o.answer, &head); err != nil {
		return err
	}
	// Decode and encode as for later reads: a Go type encodes some values differently than the API server stores them.
	is := o.state.fresh()
	if err := json.Unmarshal(o.answer, is); err != nil {
		return err
	}
	has, err := content(is)
	if err != nil {
		return err
	}
	fields := fieldsOf(head.Metadata.ManagedFields, r.manager)
	if fields == "" {
		fields = "{}"
	}
	want, err := o.want.content()
	if err != nil {
		return err
	}
	sum, err := sumOwned(fields, has, want)
	if err != nil {
		return err
	}
	c := &child{
		uid: head.Metadata.UID, want: o.want.sum, fields: unique.Make(fields), has: sum,
		seen: head.Metadata.ResourceVersion, applied: r.now,
	}
	if before := r.known.children[o.at]; before != nil && before.uid == c.uid {
		c.since = before.since
		if o.drift {
			c.again = 1
			if r.now.Sub(before.applied) < contentionWindow {
				c.again = before.again + 1
			}
		}
	}
	r.known.children[o.at] = c
	return nil
}

// fresh returns an empty object of the type and kind of the children.
func (n *node) fresh() client.Object {
	obj := reflect.New(n.child).Interface().(client.Object)
	obj.GetObjectKind().SetGroupVersionKind(n.kind)
	return obj
}
