package executor

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// run is the packet of the flow of one operation.
type run struct {
	key store.Key
	// live is what those who follow the stores know of this run.
	live *liveRun
	// op is the newest state known, with what is not written yet. The run owns it. It is nil while the flow is parked,
	// since the store has it too.
	op *v1alpha1.Operation
	// version is that of the last state this run has read or written.
	version string
	// unsaved are the changes of the status that are not written yet, to be made again on a newer state after a conflict.
	unsaved []change
	// due are the calls to make now, with the permits for them.
	due []permitted
	// tries counts failed writes in a row, for back-off.
	tries int
}

// change is one change of the status. It decides itself whether it still applies.
type change func(op *v1alpha1.Operation)

// permitted is a call that may be made.
type permitted struct {
	target  target
	attempt string
	hook    *webhook.Compiled
	permit  *webhook.Permit
}

// apply makes a change now and remembers it until it is written.
func (r *run) apply(c change) {
	c(r.op)
	r.unsaved = append(r.unsaved, c)
}

// adopt takes a newer state and makes the unsaved changes on it.
func (r *run) adopt(op *v1alpha1.Operation) {
	r.op, r.version = op, op.ResourceVersion
	for _, c := range r.unsaved {
		c(r.op)
	}
}

// refresh takes the newest state that there is without waiting: the store's, if it is not behind what this run has
// written itself, else the API server's.
func (e *Executor) refresh(ctx context.Context, r *run) error {
	if op, err := e.operations.Get(r.key); err == nil && !older(op.ResourceVersion, r.version) {
		if r.op == nil || op.ResourceVersion != r.version {
			r.adopt(op.DeepCopy())
		}
		return nil
	}
	if r.op != nil {
		return nil
	}
	return e.reload(ctx, r)
}

// reload takes the state from the API server. A deleted Operation leaves r.op nil.
func (e *Executor) reload(ctx context.Context, r *run) error {
	answer, err := call.Do(ctx, e.calls, operationRequest(call.VerbGet, r.key, func(q *call.Request) { q.NotFoundOK = true }), e.policy)
	if err != nil {
		return err
	}
	if answer == nil {
		r.op, r.unsaved = nil, nil
		return nil
	}
	op := &v1alpha1.Operation{}
	if err := answer.Into(op); err != nil {
		return err
	}
	r.adopt(op)
	return nil
}

// errOutdated says that the status was written by somebody else meanwhile: look again.
var errOutdated = fmt.Errorf("the operation has changed meanwhile")

// save writes the status. After a conflict it returns errOutdated, with the newest state adopted.
func (e *Executor) save(ctx context.Context, r *run) error {
	if len(r.unsaved) == 0 {
		return nil
	}
	answer, err := call.Do(ctx, e.calls, operationRequest(call.VerbUpdate, r.key, func(q *call.Request) {
		q.Subresource, q.Object = "status", r.op
	}), e.policy)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		if err := e.reload(ctx, r); err != nil {
			return err
		}
		return errOutdated
	case err != nil:
		return fmt.Errorf("cannot record the status: %w", err)
	}
	op := &v1alpha1.Operation{}
	if err := answer.Into(op); err != nil {
		return err
	}
	r.unsaved = nil
	r.adopt(op)
	e.wrote(r.live, op.ResourceVersion)
	return nil
}

func operationRequest(verb call.Verb, key store.Key, more func(*call.Request)) call.Request {
	q := call.Request{
		Verb: verb, Resource: v1alpha1.GroupVersion.WithResource("operations"), Kind: "Operation",
		Namespace: key.Namespace, Name: key.Name,
	}
	if more != nil {
		more(&q)
	}
	return q
}
