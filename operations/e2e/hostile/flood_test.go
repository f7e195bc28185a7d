package hostile_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// large returns a request object of the greatest size.
func large() *v1alpha1.RequestObject {
	return &v1alpha1.RequestObject{Resource: &apiextensionsv1.JSON{Raw: []byte(`"` + strings.Repeat("x", 250<<10) + `"`)}}
}

// retriesAtTheFloor retries as soon as allowed. Each try writes the status of a large object.
func retriesAtTheFloor(a *tenant) {
	a.webhook("h", a.says(http.StatusServiceUnavailable, ""), a.again)
	a.each(16, func(i int) {
		a.operation(fmt.Sprint("r", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{"h"}, large()
		})
	})
	<-a.ctx.Done()
}

// pollsAtTheFloor polls as often as allowed for a result that never comes, with a new message each time.
func pollsAtTheFloor(a *tenant) {
	n := make(chan int, 1)
	n <- 0
	url := a.serve(func(w http.ResponseWriter, _ *http.Request) {
		i := <-n
		n <- i + 1
		w.Header().Set("Location", fmt.Sprint("/again/", i))
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, `{"status": "state %d"}`, i) // the caller may be gone
	})
	a.webhook("h", url, func(w *v1alpha1.WebhookSpec) {
		w.Mode, w.Poll.Interval = v1alpha1.ModeAsync, metav1.Duration{Duration: 50 * time.Millisecond}
	})
	a.each(16, func(i int) {
		a.operation(fmt.Sprint("p", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{"h"}, large()
		})
	})
	<-a.ctx.Done()
}

// pollsRetryAfter redirects polls from one address to another, with all forms of Retry-After.
func pollsRetryAfter(a *tenant) {
	after := []string{
		"0", "-1", "9223372036854775807", "1e9", "Thu, 01 Jan 1970 00:00:00 GMT",
		"Fri, 31 Dec 9999 23:59:59 GMT", strings.Repeat("9", 5_000), "\x80",
	}
	n := make(chan int, 1)
	n <- 0
	url := a.serve(func(w http.ResponseWriter, r *http.Request) {
		i := <-n
		n <- i + 1
		w.Header().Set("Retry-After", after[i%len(after)])
		w.Header().Set("Location", []string{
			"../" + fmt.Sprint(i), "//127.0.0.1:1/", "?" + strings.Repeat("q", 9_000),
			"http://[::1]:1/", "",
		}[i%5])
		w.WriteHeader([]int{http.StatusAccepted, http.StatusServiceUnavailable, http.StatusSeeOther}[i%3])
	})
	a.webhook("h", url, func(w *v1alpha1.WebhookSpec) {
		a.again(w)
		w.Mode, w.Poll.Interval, w.Response.Retry = v1alpha1.ModeAsync, metav1.Duration{Duration: 50 * time.Millisecond}, ""
	})
	a.always(4, 20, func(hand, i int) { a.call(fmt.Sprint("p", hand, "-", i), "h") })
}

// hangWithManyTenants makes a receiver hang for more callers than there are slots. Each caller names a tenant of its
// own.
func hangWithManyTenants(a *tenant) {
	a.webhook("h", a.hangs(), func(w *v1alpha1.WebhookSpec) {
		w.RequestTimeout = metav1.Duration{Duration: 10 * time.Minute}
	})
	a.each(600, func(i int) {
		a.operation(fmt.Sprint("t", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{"h"}, &v1alpha1.RequestObject{TenantID: fmt.Sprint("tenant-", i)}
		})
	})
	<-a.ctx.Done()
}

// webhooksEdited wakes waiting operations by edits of any Webhook.
func webhooksEdited(a *tenant) {
	url := a.says(http.StatusOK, "{}")
	a.each(50, func(i int) { a.webhook(fmt.Sprint("h", i), url, nil) })
	a.each(300, func(i int) { a.call(fmt.Sprint("w", i), "missing") })
	a.always(4, 50, func(hand, i int) {
		a.patch(false, fmt.Sprint("h", (4*i+hand)%50),
			map[string]any{"spec": map[string]any{"requestTimeout": fmt.Sprint(1+i, "ms")}})
	})
}

// webhooksBreakers opens and closes the breakers of many Webhooks, each of which is written to a status.
func webhooksBreakers(a *tenant) {
	n := make(chan int, 1)
	n <- 0
	url := a.serve(func(w http.ResponseWriter, _ *http.Request) {
		i := <-n
		n <- i + 1
		w.WriteHeader([]int{http.StatusOK, http.StatusServiceUnavailable}[i%2])
	})
	const hooks = 100
	a.each(hooks, func(i int) {
		a.webhook(fmt.Sprint("h", i), url, func(w *v1alpha1.WebhookSpec) {
			a.again(w)
			w.Breaker = v1alpha1.WebhookBreaker{Failures: 1, OpenFor: metav1.Duration{Duration: time.Nanosecond}}
		})
		a.call(fmt.Sprint("b", i), fmt.Sprint("h", i))
	})
	<-a.ctx.Done()
}

// operationsAgain creates and deletes operations as fast as possible.
func operationsAgain(a *tenant) {
	a.webhook("h", a.says(http.StatusOK, "{}"), nil)
	a.always(4, 100, func(hand, i int) {
		id := fmt.Sprint("a", hand, "-", i%10)
		a.operation(id, func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.OperationCategory = []string{"h"}, fmt.Sprint("category-", hand, "-", i)
		})
		a.remove(id)
	})
}

// operationsCanceled cancels hanging operations, over and over.
func operationsCanceled(a *tenant) {
	a.webhook("h", a.hangs(), nil)
	a.webhook("undo", a.says(http.StatusServiceUnavailable, ""), a.again)
	a.always(4, 50, func(hand, i int) {
		id := fmt.Sprint("k", hand, "-", i)
		a.operation(id, func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.CompensateWebhookIDs, spec.NotifyWebhookID = []string{"h"}, []string{"undo"}, "undo"
		})
		a.patch(true, id, map[string]any{"spec": map[string]any{"cancelRequested": true}})
	})
}

// operationsWithLists have lists of the greatest length, and slightly longer ones.
func operationsWithLists(a *tenant) {
	url := a.says(http.StatusServiceUnavailable, "")
	const most = 32
	var hooks []string
	for i := range most {
		hooks = append(hooks, fmt.Sprint("h", i))
		a.webhook(hooks[i], url, a.again)
	}
	related := func(n int) (all []v1alpha1.RelatedResource) {
		for i := range n {
			all = append(all, v1alpha1.RelatedResource{
				ResourceReference: v1alpha1.ResourceReference{
					ResourceType: "app", ResourceID: fmt.Sprint(i, strings.Repeat("r", 500)),
				}, Lock: true,
			})
		}
		return all
	}
	a.each(100, func(i int) {
		a.operation(fmt.Sprint("l", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.CompensateWebhookIDs, spec.Execution = hooks, hooks, v1alpha1.ExecutionParallel
			spec.RelatedResources = related(64)
		})
	})
	a.operation("too-many", func(spec *v1alpha1.OperationSpec) { // the API server refuses the longer ones
		for i := range 10_000 {
			spec.WebhookIDs = append(spec.WebhookIDs, fmt.Sprint("h", i))
		}
	})
	<-a.ctx.Done()
}

// operationsShortLived are deleted as soon as they have ended.
func operationsShortLived(a *tenant) {
	a.webhook("h", a.says(http.StatusOK, "{}"), nil)
	a.always(8, 50, func(hand, i int) {
		a.operation(fmt.Sprint("s", hand, "-", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.TTLAfterFinished = []string{"h"}, &metav1.Duration{Duration: time.Nanosecond}
		})
	})
}

// operationsWaiting are many operations that wait forever. Each edit of a Webhook wakes them.
func operationsWaiting(a *tenant) {
	a.webhook("h", a.says(http.StatusOK, "{}"), nil)
	a.each(3_000, func(i int) {
		a.operation(fmt.Sprint("w", i), func(spec *v1alpha1.OperationSpec) {
			spec.WebhookIDs, spec.RequestObject = []string{"missing"},
				&v1alpha1.RequestObject{TenantID: fmt.Sprint("tenant-", i)}
		})
		if i%50 == 0 {
			a.patch(false, "h", map[string]any{"spec": map[string]any{"requestTimeout": fmt.Sprint(1+i, "ms")}})
		}
	})
	a.always(2, 50, func(hand, i int) {
		a.patch(false, "h", map[string]any{"spec": map[string]any{"requestTimeout": fmt.Sprint(5_000+10*i+hand, "ms")}})
	})
}

// locksHeld lets one operation hold locks while its receiver hangs. Each change of it wakes the long line of operations
// behind it.
func locksHeld(a *tenant) {
	a.webhook("h", a.hangs(), func(w *v1alpha1.WebhookSpec) {
		w.RequestTimeout = metav1.Duration{Duration: 10 * time.Minute}
	})
	lock := func(spec *v1alpha1.OperationSpec) {
		spec.WebhookIDs = []string{"h"}
		for i := range 64 {
			spec.RelatedResources = append(spec.RelatedResources, v1alpha1.RelatedResource{
				ResourceReference: v1alpha1.ResourceReference{ResourceType: "app", ResourceID: fmt.Sprint("shared-", i)},
				Lock:              true,
			})
		}
	}
	a.operation("first", lock)
	a.each(300, func(i int) { a.operation(fmt.Sprint("l", i), lock) })
	a.always(2, 20, func(hand, i int) {
		a.patch(true, "first", map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"touched": fmt.Sprint(hand, i)}},
		})
	})
}

// namesOfAllKinds use every character that is allowed in a name, a type or a category.
func namesOfAllKinds(a *tenant) {
	a.webhook("h", a.says(http.StatusOK, "{}")+"/{{.Operation.resourceID}}?{{.Operation.resourceType}}", nil)
	parts := []string{
		"\u202e", "\u0000", "\n", "%2F", "/", "..", "{{.}}", "\xff", "💥", "\u2028", "'\"<>",
		strings.Repeat("ä", 100), "\x1b[2J",
	}
	a.always(1, 100, func(int, int) {
		id := ""
		for range 1 + a.rnd.IntN(4) {
			id += parts[a.rnd.IntN(len(parts))]
		}
		op := newOperation(a.namespace, id)
		op.Spec.WebhookIDs, op.Spec.OperationCategory, op.Spec.CorrelationID = []string{"h"}, strings.ToValidUTF8(id, "?"),
			"correlation"
		_ = a.hit(submit(a.ctx, a.calls, op, once)) // hit counts the error
	})
}
