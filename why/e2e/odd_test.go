package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// TestOdd: programs are stuck in ways that their authors, or the API server, did not intend.
func TestOdd(t *testing.T) {
	t.Parallel()
	cm := func(ctx context.Context, c *client.Client, m *configMap, change func(*configMap)) error {
		own := &configMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "own"}}
		if err := c.Live().Get(ctx, client.KeyOf(own), own); err != nil {
			own.Immutable, own.Data = new(true), map[string]string{"a": "b"}
			if err := c.Create(ctx, own); err != nil {
				return err
			}
		}
		change(own)
		return c.Update(ctx, own)
	}
	for name, j := range map[string]judged{
		"immutable": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				return cm(ctx, c, m, func(own *configMap) { own.Data["a"] = "c" })
			}),
			Case: judge.Case{
				Reason: "what cannot be changed is changed",
				Want:   why.BackOff, Evidence: []string{"status=422", "error=immutable"},
				Advice: "invalid",
			},
		},
		"outdated": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				return cm(ctx, c, m, func(own *configMap) { own.ResourceVersion = "1" })
			}),
			Case: judge.Case{
				Reason: "a version from before is written",
				Want:   why.Conflict, Evidence: []string{"status=409"}, Advice: "other writer",
			},
		},
		"leader": {
			run: answers(http.StatusInternalServerError, "InternalError", "etcdserver: leader changed"),
			Case: judge.Case{
				Reason: "etcd elects",
				Want:   why.BackOff, Evidence: []string{"status=500", "error=leader changed"}, Advice: "etcd",
			},
		},
		"proxy": {
			run: answers(http.StatusBadGateway, "", "<html>bad gateway</html>"),
			Case: judge.Case{
				Reason: "a proxy before the API server", Want: why.BackOff, Evidence: []string{"status=502"},
			},
		},
		"gone": {
			run: answers(http.StatusGone, "Expired", "The provided continue parameter is too old"),
			Case: judge.Case{
				Reason: "a list that takes too long", Want: why.BackOff, Evidence: []string{"status=410"},
			},
		},
		"terminating": {
			run: answers(http.StatusForbidden, "Forbidden", `secrets "x" is forbidden: unable to create new `+
				"content in namespace y because it is being terminated"),
			Case: judge.Case{
				Reason: "its namespace goes",
				Want:   why.Forbidden, Evidence: []string{"refusedBy=namespace y"}, Advice: "Nothing can be created",
			},
		},
		"cel": {
			run: answers(http.StatusUnprocessableEntity, "Invalid", "ValidatingAdmissionPolicy 'no-prod' with "+
				"binding 'b' denied request: no secrets in prod"),
			Case: judge.Case{
				Reason: "a policy", Want: why.Forbidden,
				Evidence: []string{"refusedBy=no-prod"}, Advice: "policy",
			},
		},
		"slow webhook": {
			run: answers(http.StatusInternalServerError, "InternalError", "Internal error occurred: failed calling "+
				"webhook \"v.example.com\": failed to call webhook: Post \"https://v/\": context deadline exceeded"),
			Case: judge.Case{
				Reason: "an admission webhook takes too long",
				Want:   why.BackOff, Evidence: []string{"webhook=v.example.com"},
				Advice: "admission webhook",
			},
		},
		"crm": {
			run: does(fails(fmt.Errorf("cannot ask the crm: %w", context.DeadlineExceeded))),
			Case: judge.Case{
				Reason: "it is the crm that took too long, not the reconciliation", Want: why.BackOff,
				Evidence: []string{"error=cannot ask the crm"}, Advice: "error",
			},
		},
		"essay": {
			run: does(fails(errors.New(strings.Repeat("because ", 100_000)))),
			Case: judge.Case{
				Reason: "an error as long as a book", Want: why.BackOff, Lacks: strings.Repeat("because ", 1000),
			},
		},
		"untyped": {
			run: does(fails(why.Because(errors.New("no address"), why.Cause{Message: "the pool is empty"}))),
			Case: judge.Case{
				Reason: "a cause without a type is a back-off", Want: why.BackOff, Message: "the pool is empty",
				Evidence: []string{"error=no address", "attempts="},
			},
		},
		"two causes": {
			run: does(fails(why.Because(errors.New("no"),
				why.Cause{Type: why.RateLimited, Message: "the quota of the registry"},
				why.Cause{Type: why.Forbidden, Message: "the token of the registry", Advice: "Renew it."}))),
			Case: judge.Case{
				Reason: "what is forbidden does not go by waiting",
				Want:   why.Forbidden, Then: []why.Type{why.RateLimited},
			},
		},
		"joined": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				return errors.Join(errors.New("the crm is away"), c.Create(ctx, secret("no-such-place", "s")))
			}),
			Case: judge.Case{
				Reason: "two errors at once",
				Want:   why.BackOff, Evidence: []string{"status=404", "error=the crm is away"},
				Advice: "does not exist",
			},
		},
		"rate": {
			run: func(w *world) *fairlead.Runtime {
				rt := does(fails(nil), reconcile.RateLimit(1, time.Hour))(w)
				w.expect(rt, "x", why.Ended, nil)
				w.change("x", func(m *configMap) { m.Data = map[string]string{"a": "b"} })
				return rt
			},
			Case: judge.Case{
				Reason: "it may be reconciled once an hour",
				Want:   why.RateLimited, Until: time.Hour, Message: "RateLimit", Advice: "RateLimit",
			},
		},
		"paced": {
			run: func(w *world) *fairlead.Runtime {
				rt := does(fails(nil), reconcile.TotalRateLimit(1, time.Hour))(w)
				w.expect(rt, "x", why.Ended, nil)
				w.change("x", func(m *configMap) { m.Data = map[string]string{"a": "b"} })
				return rt
			},
			Case: judge.Case{
				Reason: "the controller may reconcile once an hour",
				Want:   why.RateLimited, Message: "TotalRateLimit", Advice: "TotalRateLimit",
			},
		},
		"unsaid": {
			run: steps(flow.Step("order", func(_ context.Context, f fiberOf) flow.Next {
				f.Because(why.Cause{Type: why.Parked, Message: "no address is free"})
				return f.Suspend(f.Token())
			})),
			Case: judge.Case{Reason: "a step says why, and not what to do", Want: why.Parked, Message: "no address"},
		},
		"again": {
			run:  steps(flow.Step("order", func(_ context.Context, f fiberOf) flow.Next { return f.Retry(time.Hour) })),
			Case: judge.Case{Reason: "a step asks to run again", Want: why.BackOff, Until: time.Hour},
		},
		"children": {
			run: steps(flow.Step("all", func(_ context.Context, f fiberOf) flow.Next {
				kid := flow.New("kid", flow.Step("fail", func(_ context.Context, f fiberOf) flow.Next {
					return f.Fail(errors.New("no disk"))
				}, flow.Retry(flow.Backoff{Base: time.Hour})))
				return f.Fork([]flow.Child{kid.Child("a", f.Packet), kid.Child("b", f.Packet)})
			})),
			Case: judge.Case{
				Reason: "the children of a step fail: that is why it waits",
				Want:   why.BackOff, Evidence: []string{"error=no disk"},
				Then: []why.Type{why.Parked},
			},
		},
		"missing object": {
			run: steps(flow.Step("wait", func(_ context.Context, f fiberOf) flow.Next {
				c, _ := flow.Use[*client.Client](f)
				k := client.Key{Namespace: f.Packet.Namespace, Name: "web"}
				return f.Await(client.Condition[corev1.Pod](c, k, "Ready"))
			})),
			Case: judge.Case{
				Reason: "what is waited for does not exist", Want: why.Parked,
				Message: "there is no Pod", Advice: "Create it",
			},
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.put("x")
			w.judge(j.run(w), "x", j.Case)
		})
	}
}
