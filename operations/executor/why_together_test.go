package executor_test

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhyTogether creates situations with two causes at once, or with a cause that has passed.
func TestWhyTogether(t *testing.T) {
	b := setup(t)
	asked, open := b.gate("/hold")
	defer open()
	hold := b.Receiver.Answer
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, n int) {
		switch path {
		case "/later":
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/wrong":
			w.WriteHeader(http.StatusBadRequest)
		case "/poll":
			w.Header().Set("Location", "/jobs/busy")
			w.WriteHeader(http.StatusAccepted)
		case "/hold":
			hold(w, r, path, n)
		default:
			odd(w, r, path, n)
		}
	}
	b.Webhook("next", nil)
	b.Webhook("wrong", nil)
	b.Webhook("poll", func(s *v1alpha1.WebhookSpec) { s.Mode, s.Poll.Interval = v1alpha1.ModeAsync, hours(1) })
	b.Webhook("hold", nil)
	b.Webhook("later", nil)
	broken := func(s *v1alpha1.WebhookSpec) {
		s.Request.URL, s.Retry.InitialInterval, s.Retry.MaxInterval = b.Receiver.URL+"/broken", hours(300), hours(300)
	}
	b.Webhook("broken", broken)
	b.Webhook("doomed", broken)
	a := asking{bench: b}
	stop := b.StartWith(nil, func(e *executor.Executor) { a.e = e })
	schedule := func(id string, r operations.Request, hooks ...string) *v1alpha1.Operation {
		t.Helper()
		r.Resource, r.Webhooks = app(id), hooks
		return b.Schedule(r)
	}
	cancel := func(id string) {
		t.Helper()
		if _, err := b.Scheduler.Cancel(b.Ctx, app(id), ""); err != nil {
			t.Fatal(err)
		}
	}
	type types = []why.Type
	undone := operations.Request{Compensate: []string{"broken"}, Notify: "nowhere", Lock: []operations.Resource{database}}
	undoing := judge.Case{
		Want: why.BackOff, Evidence: []string{"purpose=compensate", "webhook=broken", "status=500", "after=Canceled"},
	}

	schedule("canceled", undone, "next", "hold")
	b.Received(asked)
	cancel("canceled")
	undoing.Reason = "the canceled operation is being compensated, which fails; the notification comes later"
	a.judge("canceled", undoing)
	schedule("locked", operations.Request{Lock: []operations.Resource{database}}, "nowhere")
	a.judge("locked", judge.Case{
		Reason: "behind one that is being compensated, and a Webhook is missing, too", Want: why.LockHeld,
		Evidence: []string{"holder=app/canceled"}, Then: types{why.BackOff},
	})
	b.patchFinalizers(nameOf(app("canceled")), `["example.com/keeper", "`+v1alpha1.Finalizer+`"]`)
	b.Delete(nameOf(app("canceled")))
	undoing.Reason = "it was deleted since, and has a foreign finalizer, for which it does not wait yet"
	a.judge("canceled", undoing)

	schedule("all", operations.Request{Execution: v1alpha1.ExecutionParallel}, "broken", "later", "nowhere")
	a.judge("all", judge.Case{
		Reason: "each call has its own trouble", Want: why.WebhookMissing, Then: types{why.RetryAfter, why.BackOff},
	})
	schedule("notified", operations.Request{Notify: "later"}, "next")
	a.judge("notified", judge.Case{
		Reason: "its work is done, and the notification is refused", Want: why.RetryAfter, Until: 2 * time.Hour,
		Evidence: []string{"purpose=notify"}, Message: "notification", Progress: true,
	})
	schedule("doomed", operations.Request{}, "doomed")
	a.judge("doomed", judge.Case{Want: why.BackOff, Evidence: []string{"status=500"}})
	schedule("poll", operations.Request{}, "poll")
	a.judge("poll", judge.Case{Want: why.Parked, Evidence: []string{"waitsFor=poll"}, Progress: true})
	for _, hook := range []string{"doomed", "poll"} {
		b.DeleteWebhook(hook)
		a.judge(hook, judge.Case{
			Reason: "the Webhook was deleted meanwhile",
			Want:   why.WebhookMissing, Evidence: []string{"webhook=" + hook},
		})
	}
	b.Webhook("doomed", broken)
	a.judge("doomed", judge.Case{Reason: "the Webhook exists again", Want: why.BackOff, Evidence: []string{"status=500"}})

	schedule("one", operations.Request{Lock: []operations.Resource{app("two")}}, "nowhere")
	schedule("two", operations.Request{Lock: []operations.Resource{app("one")}}, "next")
	a.judge("two", judge.Case{
		Reason: "each locks the other one: the first comes first", Want: why.LockHeld,
		Evidence: []string{"holder=app/one", "resource=app/"}, Then: types{why.WebhookMissing},
	})
	failed := b.End(schedule("again", operations.Request{}, "wrong"))
	a.judge("again", judge.Case{
		Want:     why.Ended,
		Evidence: []string{"webhook=wrong", "status=400", "attempts=1", "operation=" + failed.EffectiveID()},
	})
	schedule("three", operations.Request{Lock: []operations.Resource{app("again")}}, "nowhere")
	a.judge("three", judge.Case{Want: why.WebhookMissing})
	if _, err := b.Scheduler.Retry(b.Ctx, app("again")); err != nil {
		t.Fatal(err)
	}
	a.judge("again", judge.Case{
		Reason: "retried, and locked by another one now",
		Want:   why.LockHeld, Evidence: []string{"holder=app/three"},
	})
	kubectl := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: nameOf(app("other")), Namespace: b.Namespace}}
	kubectl.Spec = failed.Spec
	kubectl.Spec.OperationID = ""
	b.Create(v1alpha1.OperationsResource, v1alpha1.KindOperation, kubectl)
	a.judge("other", judge.Case{
		Reason: "made by hand, under another name",
		Want:   why.Ended, Evidence: []string{"reason=Invalid", "error=metadata.name"},
	})
	schedule("last", operations.Request{Lock: []operations.Resource{database}}, "next")
	a.judge("last", judge.Case{Want: why.LockHeld, Then: types{why.LockHeld, why.BackOff}})
	cancel("locked")
	a.judge("locked", judge.Case{Want: why.Ended, Evidence: []string{"reason=Canceled"}})
	b.Webhook("nowhere", nil)
	a.judge("one", judge.Case{Reason: "the missing Webhook exists, so both end", Want: why.Ended})
	a.judge("two", judge.Case{
		Reason: "there is no lock any more", Want: why.Ended,
		Evidence: []string{"reason=Succeeded"},
	})
	b.DeleteWebhook("nowhere")

	// No executor runs any more. An executor that knows only the objects gives the same causes, and adds that nothing
	// runs.
	schedule("four", operations.Request{Lock: []operations.Resource{{Type: "db", ID: "9"}}}, "doomed", "nowhere")
	stop()
	a.e = b.Prepare(b.Config, nil).Executor
	a.judge("last", judge.Case{
		Reason: "the chain is derived from the objects", Want: why.LockHeld, Evidence: []string{"holder=app/canceled"},
		Then: types{why.BackOff},
	})
	cancel("doomed")
	a.judge("doomed", judge.Case{
		Reason: "its cancellation was requested, and no executor runs",
		Want:   why.Parked, Message: "cancellation was requested",
	})
	schedule("late", operations.Request{Timeout: time.Second}, "next")
	b.Delete(nameOf(app("all")))
	a.judge("all", judge.Case{
		Reason: "it was deleted, and no executor runs", Want: why.Parked, Message: "it was deleted",
	})
	a.judge("late", judge.Case{
		Reason: "no executor has picked it up in time", Want: why.DeadlinePassed, Then: types{why.Parked},
	})
}
