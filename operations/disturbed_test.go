package operations_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestDisturbed lets callers schedule, retry, cancel and delete operations of the same resources through two
// schedulers. A third of the requests fail: lost requests, lost answers, and resources that others change first. The
// test examines all writes that reached the API server. An operation starts once, however often it is requested. A
// definite error means that nothing was started. No operation replaces one that has not ended.
func TestDisturbed(t *testing.T) {
	seed.Play(t, 3, func(t *testing.T, play uint64) {
		b := setup(t)
		d := &disturber{bench: b, seed: play}
		schedulers := []*operations.Scheduler{d.scheduler(), d.scheduler()}
		var all sync.WaitGroup
		for r := range 6 {
			res := operations.Resource{Type: "Application", ID: fmt.Sprint("app", r)}
			for c := range 2 {
				all.Go(func() {
					actor := &caller{disturber: d, res: res, name: fmt.Sprint(res.ID, "-", c), schedulers: schedulers}
					actor.rnd = seed.Rand(play, actor.name)
					for step := range 6 {
						actor.act(step, r == 0)
					}
				})
			}
		}
		all.Wait()
		d.check()
		t.Logf("%d requests, %d of them disturbed", d.all, d.disturbed)
	})
}

// caller makes one request after the other.
type caller struct {
	*disturber
	name       string
	res        operations.Resource
	schedulers []*operations.Scheduler
	rnd        *rand.Rand
}

func (c *caller) act(step int, deletes bool) {
	action := fmt.Sprint(c.name, "-", step)
	ctx := context.WithValue(c.ctx, actionKey{}, action)
	scheduler := func() *operations.Scheduler { return c.schedulers[c.rnd.IntN(len(c.schedulers))] }
	switch what := c.rnd.IntN(10); {
	case what < 7 && c.begun(c.res) > 8: // the history has room for ten
	case what < 5:
		request := operations.Request{
			ID: action, Type: operations.Update, Resource: c.res,
			Object: map[string]any{"b": 1, "a": []int{2}},
		}
		c.repeat(func() bool {
			op, err := scheduler().Schedule(ctx, request)
			c.scheduled(action, op, err)
			if errors.Is(err, operations.ErrInProgress) && c.rnd.IntN(2) == 0 {
				c.end(c.res, c.rnd)
				return true
			}
			return err != nil && !answered(err) || err == nil && c.rnd.IntN(2) == 0
		})
	case what < 7:
		op, err := scheduler().Retry(ctx, c.res)
		c.retried(action, op, err)
	case what < 9:
		op, err := scheduler().Cancel(ctx, c.res, "")
		c.canceled(action, op, err)
	case deletes:
		c.remove(c.res)
	}
	if c.rnd.IntN(3) > 0 {
		c.end(c.res, c.rnd)
	}
}

// repeat calls again until it returns false, at most 20 times.
func (c *caller) repeat(again func() bool) {
	for range 20 {
		if !again() {
			return
		}
	}
}

// answered reports whether an error describes the API server's state for a request. Other errors mean that the request
// could not be made.
func answered(err error) bool {
	return slices.ContainsFunc([]error{
		operations.ErrInProgress, operations.ErrIDReused, operations.ErrNotFound, operations.ErrEnded,
		operations.ErrSucceeded,
		operations.ErrFollowed,
	}, func(target error) bool { return errors.Is(err, target) })
}

func (d *disturber) scheduled(id string, op *v1alpha1.Operation, err error) {
	began := d.count(func(e entry) bool { return e.kind == begin && e.id == id })
	switch {
	case err == nil && op.EffectiveID() != id:
		d.errorf("asked for %s, got %s", id, op.EffectiveID())
	case err == nil && began == 0:
		d.errorf("%s was never started", id)
	case errors.Is(err, operations.ErrIDReused), answered(err) && began > d.removed(id):
		d.errorf("%s was begun: %v", id, err)
	}
	d.plain(id, err)
}

func (d *disturber) retried(action string, op *v1alpha1.Operation, err error) {
	began := d.ids(begin, action)
	switch {
	case len(began) > 1:
		d.errorf("%s began %q", action, began)
	case err == nil && !slices.Contains(began, op.EffectiveID()):
		d.errorf("%s returned %s and started %q", action, op.EffectiveID(), began)
	case answered(err) && len(began) > 0 && d.removed(began[0]) == 0:
		d.errorf("%s began %q: %v", action, began, err)
	}
	d.plain(action, err)
}

func (d *disturber) canceled(action string, op *v1alpha1.Operation, err error) {
	canceled := d.ids(cancel, action)
	switch {
	case len(canceled) > 1:
		d.errorf("%s canceled %q", action, canceled)
	case err == nil && (!op.Spec.CancelRequested || len(canceled) == 1 && canceled[0] != op.EffectiveID()):
		d.errorf("%s returned %s and canceled %q", action, op.EffectiveID(), canceled)
	case errors.Is(err, operations.ErrInProgress), errors.Is(err, operations.ErrNotFound) && len(canceled) > 0 &&
		d.removed(canceled[0]) == 0:
		d.errorf("%s canceled %q: %v", action, canceled, err)
	}
	d.plain(action, err)
}

// plain fails the test if an error is not one of the documented ones.
func (d *disturber) plain(action string, err error) {
	if err != nil && !answered(err) && !errors.Is(err, disturb.ErrLost) && !apierrors.IsConflict(err) {
		d.errorf("%s: %v", action, err)
	}
}

// check examines all writes that reached the API server, in the order of their versions.
func (d *disturber) check() {
	d.mu.Lock()
	log := slices.Clone(d.log)
	d.mu.Unlock()
	last := func(e entry) int { return map[kind]int{remove: 1}[e.kind] } // a removal has the version that it removed
	slices.SortFunc(log, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.version, b.version), cmp.Compare(last(a), last(b)))
	})
	running, began, removed := map[string]string{}, map[string]int{}, map[string]int{}
	for _, e := range log {
		switch e.kind {
		case begin:
			if id := running[e.resource]; id != "" {
				d.errorf("%s replaced %s, which had not ended", e.id, id)
			}
			running[e.resource] = e.id
			if began[e.id]++; began[e.id] > 1+removed[e.id] {
				d.errorf("%s was started %d times and removed %d times", e.id, began[e.id], removed[e.id])
			}
		case end, remove:
			if id := running[e.resource]; e.kind == end && id != e.id {
				d.errorf("%s has ended while %s was stored", e.id, id)
			}
			running[e.resource] = ""
			for _, id := range e.ids {
				removed[id]++
			}
		}
	}
}

type kind string

const (
	begin  kind = "begin"
	cancel kind = "cancel"
	end    kind = "end"
	remove kind = "remove"
)

// entry is a successful write.
type entry struct {
	kind                 kind
	resource, id, action string
	version              uint64
	ids                  []string // remove: all that were removed
}

// disturber disturbs the requests between the schedulers and the API server, and records those that arrive.
type disturber struct {
	*bench
	seed uint64

	mu             sync.Mutex
	all, disturbed int
	log            []entry
	sent           map[string]int
}

type actionKey struct{}

func (d *disturber) errorf(format string, args ...any) {
	d.t.Errorf("FAIRLEAD_SEED=%d: %s", d.seed, fmt.Sprintf(format, args...))
}

func (d *disturber) scheduler() *operations.Scheduler {
	d.t.Helper()
	s, err := operations.NewScheduler(operations.Options{
		Config: disturb.Config(d.config, d.roundTrip), Namespace: d.Namespace(),
		Policy: call.Policy{
			Retries: 2, Base: time.Millisecond, Cap: 2 * time.Millisecond,
			Budget: &call.Budget{PerSecond: 1000},
		},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(s.Close)
	return s
}

func (d *disturber) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	action, _ := r.Context().Value(actionKey{}).(string)
	d.mu.Lock()
	if d.sent == nil {
		d.sent = make(map[string]int)
	}
	d.sent[action]++
	d.all++
	rnd, fault := seed.Rand(d.seed, "others", action, d.sent[action]), disturb.Choose(d.seed, action, d.sent[action])
	if fault != disturb.None {
		d.disturbed++
	}
	d.mu.Unlock()
	id, _, _ := strings.Cut(action, "-")
	res := operations.Resource{Type: "Application", ID: id}
	switch {
	case fault == disturb.Lost:
		return nil, disturb.ErrLost
	case fault == disturb.Outdated && r.Method != http.MethodGet:
		d.others(res, rnd)
	}
	answer, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	if r.Method != http.MethodGet && answer.StatusCode < 300 {
		d.note(r.Method, action, body)
	}
	if fault == disturb.AnswerLost {
		d.others(res, rnd)
		return nil, disturb.ErrLost
	}
	answer.Body = io.NopCloser(strings.NewReader(string(body)))
	return answer, nil
}

func (d *disturber) note(method, action string, body []byte) {
	op := &v1alpha1.Operation{}
	if err := json.Unmarshal(body, op); err != nil {
		d.t.Error(err)
		return
	}
	e := entry{kind: begin, action: action}
	if method == http.MethodPatch {
		e.kind = cancel
	}
	d.add(e, op)
}

func (d *disturber) add(e entry, op *v1alpha1.Operation) {
	version, err := strconv.ParseUint(op.ResourceVersion, 10, 64)
	if err != nil {
		d.t.Error(err)
	}
	e.resource, e.id, e.version = op.Spec.ResourceID, op.EffectiveID(), version
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, e)
}

func (d *disturber) count(which func(entry) bool) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.log {
		if which(e) {
			n++
		}
	}
	return n
}

func (d *disturber) removed(id string) int {
	return d.count(func(e entry) bool { return e.kind == remove && slices.Contains(e.ids, id) })
}

func (d *disturber) begun(res operations.Resource) int {
	return d.count(func(e entry) bool { return e.kind == begin && e.resource == res.ID })
}

// ids returns the ids of the operations that an action has affected.
func (d *disturber) ids(kind kind, action string) (ids []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.log {
		if e.kind == kind && e.action == action && !slices.Contains(ids, e.id) {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// others changes a resource first. It ends its operation or writes it, and sometimes schedules another one at once.
func (d *disturber) others(res operations.Resource, rnd *rand.Rand) {
	switch rnd.IntN(4) {
	case 0:
		d.touch(res)
	case 1:
		d.end(res, rnd)
	case 2:
		d.end(res, rnd)
		d.touch(res)
		d.follow(res, rnd)
	case 3:
		d.end(res, rnd)
		if d.follow(res, rnd) {
			d.end(res, rnd)
		}
	}
}

// follow schedules another caller's operation, unless there are too many.
func (d *disturber) follow(res operations.Resource, rnd *rand.Rand) bool {
	if d.begun(res) > 5 {
		return false
	}
	op, err := d.Schedule(d.ctx, operations.Request{
		ID: fmt.Sprintf("other-%x", rnd.Uint64()), Type: operations.Update, Resource: res,
	})
	if err != nil {
		if !errors.Is(err, operations.ErrInProgress) && !apierrors.IsConflict(err) {
			d.errorf("another one: %v", err)
		}
		return false
	}
	d.add(entry{kind: begin}, op)
	return true
}

func (d *disturber) touch(res operations.Resource) {
	d.change(res, "", func(op *v1alpha1.Operation) bool {
		op.Labels = map[string]string{"touched": strconv.FormatUint(rand.Uint64(), 10)}
		return true
	})
}

// end ends the unfinished operation of a resource, as an executor would.
func (d *disturber) end(res operations.Resource, rnd *rand.Rand) {
	phase := []v1alpha1.Phase{v1alpha1.PhaseFailed, v1alpha1.PhaseSuccess}[rnd.IntN(2)]
	written := d.change(res, "status", func(op *v1alpha1.Operation) bool {
		if op.Terminal() {
			return false
		}
		setEnd(op, phase)
		return true
	})
	if written != nil {
		d.add(entry{kind: end}, written)
	}
}

// change writes an Operation, repeatedly after conflicts, unless change reports that nothing changes.
func (d *disturber) change(
	res operations.Resource, subresource string, change func(*v1alpha1.Operation) bool,
) *v1alpha1.Operation {
	for {
		op, err := d.Get(d.ctx, res)
		if errors.Is(err, operations.ErrNotFound) || err == nil && !change(op) {
			return nil
		}
		var written *call.Answer
		if err == nil {
			written, err = call.Do(d.ctx, d.calls, call.Request{
				Verb: call.VerbUpdate, Resource: v1alpha1.OperationsResource, Kind: "Operation",
				Namespace: op.Namespace, Name: op.Name, Subresource: subresource, Object: op,
			}, call.Policy{})
		}
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			continue
		case err == nil:
			err = written.Into(op)
		}
		if err != nil {
			d.errorf("%v", err)
			return nil
		}
		return op
	}
}

// remove deletes the Operation of a resource in any state.
func (d *disturber) remove(res operations.Resource) {
	for {
		op, err := d.Get(d.ctx, res)
		if errors.Is(err, operations.ErrNotFound) {
			return
		}
		if err == nil {
			_, err = call.Do(d.ctx, d.calls, call.Request{
				Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource, Kind: "Operation", Namespace: op.Namespace,
				Name: op.Name,
				// so that the removed version is known
				Body: fmt.Appendf(nil, `{"preconditions":{"resourceVersion":%q}}`, op.ResourceVersion),
			}, call.Policy{})
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			d.errorf("%v", err)
			return
		}
		ids := []string{op.EffectiveID(), op.Status.OperationID}
		for _, h := range op.Status.History {
			ids = append(ids, h.OperationID)
		}
		slices.Sort(ids)
		d.add(entry{kind: remove, ids: slices.Compact(ids)}, op)
		return
	}
}
