package operations_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// lossy returns a scheduler of the same namespace that loses the answer to its first request with that method. others
// runs before the loss is reported.
func (b *bench) lossy(method string, others func()) *operations.Scheduler {
	b.t.Helper()
	var first sync.Once
	config := disturb.Config(b.config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if r.Method == method && err == nil {
			first.Do(func() {
				err = errors.Join(disturb.ErrLost, answer.Body.Close())
				others()
			})
		}
		return answer, err
	})
	s, err := operations.NewScheduler(operations.Options{Config: config, Namespace: b.Namespace()})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

func (b *bench) update(id string) *v1alpha1.Operation {
	b.t.Helper()
	op, err := b.Schedule(b.ctx, operations.Request{ID: id, Type: operations.Update, Resource: shop})
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

func TestRetryWithALostAnswer(t *testing.T) {
	b := setup(t)
	tests := map[string]struct {
		reason string
		others func()
	}{
		"Ended": {"The operation has ended before the second try.", func() { b.finish(shop, v1alpha1.PhaseFailed) }},
		"Followed": {"Another operation has followed and ended before the second try.", func() {
			b.finish(shop, v1alpha1.PhaseFailed)
			b.update("other")
			b.finish(shop, v1alpha1.PhaseFailed)
		}},
	}
	b.update("one")
	b.finish(shop, v1alpha1.PhaseFailed)
	for name, tc := range tests {
		var written string
		op, err := b.lossy(http.MethodPut, func() {
			op, err := b.Get(b.ctx, shop)
			if err != nil {
				t.Error(err)
				return
			}
			written = op.EffectiveID()
			tc.others()
		}).Retry(b.ctx, shop)
		if err != nil || op.EffectiveID() != written {
			t.Errorf("%s: %s The retry %s returns %v", name, tc.reason, written, err)
		}
	}
}

// TestCancelReachesOneOperation: while a cancellation is under way, its operation ends and another one replaces it. The
// new one is not canceled.
func TestCancelReachesOneOperation(t *testing.T) {
	b := setup(t)
	b.update("one")
	s := b.lossy(http.MethodPatch, func() { b.finish(shop, v1alpha1.PhaseFailed); b.update("two") })
	op, err := s.Cancel(b.ctx, shop, "")
	if !errors.Is(err, operations.ErrEnded) || op.EffectiveID() != "one" {
		t.Errorf("%v %v", op, err)
	}
	if op, err := b.Get(b.ctx, shop); err != nil || op.EffectiveID() != "two" || op.Spec.CancelRequested {
		t.Errorf("the next operation: %+v %v", op.Spec, err)
	}
}

// TestBusy makes another writer change the Operation before each of the first writes of a request. There are more
// conflicts than chance produces.
func TestBusy(t *testing.T) {
	b := setup(t)
	busy := func() *operations.Scheduler {
		left := 12
		config := disturb.Config(b.config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if left > 0 && (r.Method == http.MethodPut || r.Method == http.MethodPatch) {
				left--
				(&disturber{bench: b}).touch(shop)
			}
			return next.RoundTrip(r)
		})
		s, err := operations.NewScheduler(operations.Options{Config: config, Namespace: b.Namespace()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	b.update("one")
	if op, err := busy().Cancel(b.ctx, shop, ""); err != nil || !op.Spec.CancelRequested {
		t.Errorf("cancel: %v", err)
	}
	b.finish(shop, v1alpha1.PhaseFailed)
	if _, err := busy().Retry(b.ctx, shop); err != nil {
		t.Errorf("retry: %v", err)
	}
	b.finish(shop, v1alpha1.PhaseFailed)
	if _, err := busy().Schedule(b.ctx,
		operations.Request{ID: "two", Type: operations.Update, Resource: shop}); err != nil {
		t.Errorf("schedule: %v", err)
	}
}

// TestScheduleOfADeletedOperation loses the answer to a create, and deletes the Operation before the scheduler looks
// for it.
func TestScheduleOfADeletedOperation(t *testing.T) {
	b := setup(t)
	var lost, removed sync.Once
	config := disturb.Config(b.config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodGet {
			removed.Do(func() { (&disturber{bench: b}).remove(shop) })
		}
		answer, err := next.RoundTrip(r)
		if r.Method == http.MethodPost && err == nil {
			lost.Do(func() { err = errors.Join(disturb.ErrLost, answer.Body.Close()) })
		}
		return answer, err
	})
	s, err := operations.NewScheduler(operations.Options{
		Config: config, Namespace: b.Namespace(), Policy: call.Policy{Retries: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if op, err := s.Schedule(b.ctx, operations.Request{ID: "one", Type: operations.Update, Resource: shop}); err != nil ||
		op.EffectiveID() != "one" {
		t.Errorf("%v %v", op, err)
	}
}
