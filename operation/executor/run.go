package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/store"
)

// run is the packet of the flow of one operation. While the flow is parked with no call under way this is all there is
// of an operation, so it is kept small.
type run struct {
	key    store.Key
	tenant string
	news   news

	// What follows is shared with those who follow the stores and with the calls, and guarded by Executor.mu.

	back    []landing // calls that have come back
	missed  bool      // something happened since the run looked last
	running bool      // the operation has not ended
	line    *line     // behind the operation that has to end first
	near    int64     // when nine tenths of its timeout are over, in Unix seconds
	names   names     // of the Webhooks that it may call
	// accepted is when the request was accepted, as far as that is known; nil once it was picked up.
	accepted *acceptance

	// What follows belongs to the flow.

	// op is the newest state known, with what is not written yet. It is nil while the flow is parked with no call under
	// way, since the store has it too.
	op *v1alpha1.Operation
	// version is that of the last state this run has read or written.
	version string
	// unsaved are the changes of the status that are not written yet, to be made again on a newer state after a conflict.
	unsaved []change
	// about is a hash of the request that op is about; 0 before there was one.
	about uint64
	// place is the one that it was found to be the turn of the operation for.
	place string
	// unrecorded is when a call was begun that is not recorded yet; zero if there is none (unrecorded.go).
	unrecorded time.Time
	flying     map[target]*flight
	refused    map[target]refusal
	later      map[target]time.Time // of polls that are due later than the status says, since the one before changed nothing
	refusal    error                // what was refused as too large, without anything left that could give way
	paid       price                // what was spent for the next write
	size       int32                // bytes of the last write
	tries      int32                // failed requests to the API server in a row, for back-off

	thin      thinness // how much of the operation has given way because it was too large to be stored
	stripped  thinness // up to where the requests for that were made
	owes      bool     // what a call has brought is among unsaved
	recorded  bool     // the operation was picked up, and not only in memory
	entered   bool     // the first call was begun; before, it has to be the turn of the operation
	alone     bool     // when that was found, nobody in the namespace locked anything
	outdated  bool     // the API server does not keep the keys of calls
	short     bool     // the write before had to wait for the share of the namespace
	confirmed bool     // op is not older than the executor: read from the API server, written by this run, or of a store that has caught up
}

// change is one change of the status. It decides itself whether it still applies.
type change func(op *v1alpha1.Operation)

// news is set when something has happened that a run may want to know. It is a flow.Wait for one fiber.
type news struct {
	mu      sync.Mutex
	set     bool
	waiting bool
	waker   flow.Waker
}

// Set wakes the run, now or as soon as it parks.
func (n *news) Set() {
	n.mu.Lock()
	n.set = true
	waker, waiting := n.waker, n.waiting
	n.mu.Unlock()
	if waiting {
		waker.Wake()
	}
}

// take reports whether there was news, and forgets it.
func (n *news) take() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.set
	n.set = false
	return was
}

// Watch implements flow.Wait.
func (n *news) Watch(w flow.Waker) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waker, n.waiting = w, true
	return n.unwatch
}

func (n *news) unwatch() {
	n.mu.Lock()
	n.waker, n.waiting = flow.Waker{}, false
	n.mu.Unlock()
}

// Check implements flow.Wait.
func (n *news) Check(context.Context, bool) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set, nil
}

// Backstop implements flow.Backstopped: memory misses no event.
func (n *news) Backstop() time.Duration { return 0 }

// apply makes a change now and remembers it until it is written.
func (r *run) apply(c change) {
	c(r.op)
	r.unsaved = append(r.unsaved, c)
}

// adopt takes a newer state and makes the unsaved changes on it, if it is about the same operation, and that has not
// ended.
func (r *run) adopt(op *v1alpha1.Operation) {
	if about := requestOf(op).hash(); about != r.about {
		if r.about != 0 {
			r.unsaved, r.unrecorded = nil, time.Time{}
			r.cut(errOver)
		}
		r.about = about
	}
	if op.Terminal() {
		r.unsaved, r.unrecorded = nil, time.Time{}
	}
	r.op, r.version, r.recorded = op, op.ResourceVersion, op.PickedUp()
	r.entered = entered(op) || !r.unrecorded.IsZero()
	for _, c := range r.unsaved {
		c(r.op)
	}
}

var (
	// errOutdated says that the object was written by somebody else meanwhile: look again.
	errOutdated = errors.New("the operation has changed meanwhile")
	// errGone says that the object does not exist any more.
	errGone = errors.New("the operation was deleted")
)

// refresh takes the newest state that there is without waiting: the store's, if it is not behind what this run has
// written itself, else the API server's.
func (e *Executor) refresh(ctx context.Context, r *run) error {
	fresh := e.fresh.Load()
	if known, ok := e.store.Get(r.key); ok && !resourceversion.Older(known.Version(), r.version) {
		r.confirmed = r.confirmed || fresh
		if r.op != nil && known.Version() == r.version {
			return nil
		}
		if op, err := store.As[v1alpha1.Operation](known); err == nil {
			r.adopt(op.DeepCopy())
			return nil
		}
	}
	if r.op != nil {
		return nil
	}
	return e.reload(ctx, r)
}

// get reads an operation from the API server. It returns nil if there is none.
func (e *Executor) get(ctx context.Context, key store.Key) (*v1alpha1.Operation, error) {
	op := &v1alpha1.Operation{}
	err := e.client.Live().Get(ctx, key, op)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return op, err
}

// reload takes the state from the API server. It returns errGone if there is none.
func (e *Executor) reload(ctx context.Context, r *run) error {
	op, err := e.get(ctx, r.key)
	switch {
	case err != nil:
		return err
	case op == nil:
		return errGone
	}
	r.adopt(op)
	r.confirmed = true
	return nil
}

// dropSince forgets the changes after the first n, and with them the state that they were made on, so that the next
// look begins with a newer one. A state that was adopted since has perhaps dropped all of them: that of an operation
// that has ended.
func (r *run) dropSince(n int) {
	r.op, r.unsaved = nil, r.unsaved[:min(n, len(r.unsaved))]
}

// write writes the status. After a conflict it returns errOutdated, with the newest state adopted.
func (e *Executor) write(ctx context.Context, r *run) error {
	if len(r.unsaved) == 0 {
		return nil
	}
	r.thin.apply(r.op)
	n, kept := keys(&r.op.Status), false
	err := e.submit(ctx, r, func(own *client.Client, cost client.WriteOption) error {
		return own.Status().Replace(ctx, r.op, cost, client.Kept(func(answer []byte) bool {
			kept = keptKeys(answer, n) // unless a field that the API server does not know is gone
			return kept
		}))
	})
	switch {
	case err == nil:
	case errors.Is(err, errShort), errors.Is(err, errOutdated):
		return err
	default:
		e.trust.failed(r.key.Namespace)
		return fmt.Errorf("cannot record the status: %w", err)
	}
	r.unsaved, r.unrecorded = nil, time.Time{}
	e.trust.written(r.key.Namespace, n, kept || keys(&r.op.Status) == n)
	e.wrote(r, r.op)
	return nil
}

// patch changes what is not the status.
func (e *Executor) patch(ctx context.Context, r *run, patch []byte) error {
	op := e.named(r)
	err := e.submit(ctx, r, func(own *client.Client, cost client.WriteOption) error {
		merge := client.RawPatch(types.MergePatchType, patch)
		return own.Patch(ctx, op, merge, client.SameVersion(), client.Always(), cost)
	})
	if err == nil {
		e.wrote(r, op)
	}
	return err
}

// named returns an object that names the operation of a run in the version that the run knows.
func (e *Executor) named(r *run) *v1alpha1.Operation {
	return &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.key.Namespace, Name: r.key.Name, UID: r.op.UID, ResourceVersion: r.op.ResourceVersion,
	}}
}

// submit makes a write that holds only for the version that the run knows.
func (e *Executor) submit(
	ctx context.Context, r *run, write func(own *client.Client, cost client.WriteOption) error,
) error {
	if !e.pay(r) {
		return errShort
	}
	size := 0
	err := write(e.writer(r), client.Answered(func(raw []byte) { size = effort(raw) }))
	e.settlePaid(r, size, err)
	switch {
	case apierrors.IsConflict(err):
		if err := e.reload(ctx, r); err != nil {
			return err
		}
		return errOutdated
	case apierrors.IsNotFound(err):
		return errGone
	}
	return err
}

// owner is whose writes those are whose events are no news to runs.
const owner = "fairlead executor"

// writer returns the client of a run. Events of its writes are no news, but for those before its first call: they may
// be what it waits for to know its turn.
func (e *Executor) writer(r *run) *client.Client {
	if !entered(r.op) {
		return e.client
	}
	return e.client.Bound(client.Binding{Write: store.WriteContext{Owner: owner, Primary: r.key}})
}

// wrote adopts the answer to a write, which others look at in the store from now on.
func (e *Executor) wrote(r *run, op *v1alpha1.Operation) {
	r.adopt(op)
	r.confirmed = true
	e.moveLine(r.key)
}
