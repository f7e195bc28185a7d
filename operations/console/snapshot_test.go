package console_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/why"
)

// asked is an Authorizer that permits everything, and calls a function at each review.
type asked struct {
	httpapi.Anonymous
	at atomic.Pointer[func(n int)]
	n  atomic.Int32
}

func (a *asked) May(context.Context, string, httpapi.Access) error {
	if at := a.at.Load(); at != nil {
		(*at)(int(a.n.Add(1)))
	}
	return nil
}

// TestOneMoment: if an operation ends while its page is rendered, the page shows it as in progress or as ended, never
// both.
func TestOneMoment(t *testing.T) {
	t.Parallel()
	questions := &asked{}
	var st *cache.Store
	w := newWorld(t, func(o *console.Options) {
		o.Authorizer = questions
		change(o, func(s *operationsconsole.Section) { st = s.Operations })
	})
	w.Tokens["anybody"] = "any"
	w.Webhook("job")
	var end func()
	var afterReport atomic.Pointer[func()] // called after the executor
	w.Runtime.Explain(why.Func(func(context.Context, why.Object) []why.Cause {
		if end := afterReport.Swap(nil); end != nil {
			(*end)()
		}
		return nil
	}))
	for name, when := range map[string]func(){
		"before anything is asked": func() {
			at := func(n int) {
				if n == 1 {
					end()
				}
			}
			questions.at.Store(&at)
		},
		"during the review of the reader's right": func() {
			at := func(n int) {
				if n == 2 {
					end()
				}
			}
			questions.at.Store(&at)
		},
		"after its state was read": func() { afterReport.Store(&end) },
		"later":                    func() {},
	} {
		op := w.Schedule(strings.ReplaceAll(name, " ", "-"), "job")
		k := cache.Key{Namespace: op.Namespace, Name: op.Name}
		w.Eventually("a call", func() bool { return strings.Contains(w.Get("anybody", w.Path(op)).Body, "In Progress") })
		end = func() {
			resource := operations.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
			if _, err := w.Scheduler.Cancel(w.Ctx, resource, op.EffectiveID()); err != nil {
				t.Error(err)
			}
			w.Eventually("the end", func() bool {
				now, err := cache.Of[v1alpha1.Operation](st).Get(k)
				return err == nil && now.Terminal()
			})
		}
		questions.n.Store(0)
		when()
		body := w.Get("anybody", w.Path(op)).Body
		questions.at.Store(nil)
		_, head, _ := strings.Cut(body, "<h1>")
		head, _, _ = strings.Cut(head, "</h1>")
		going, ended := strings.Contains(head, "in progress"), strings.Contains(body, `<span class="type">Ended</span>`)
		if going == ended || going != (name == "later") {
			t.Errorf("%s: in progress %t, ended %t: %s", name, going, ended, body)
		}
	}
}
