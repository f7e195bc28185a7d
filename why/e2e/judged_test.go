package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/judge"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// judged is the expected answer about ConfigMap x of a stuck program.
type judged struct {
	run func(w *world) *fairlead.Runtime
	judge.Case
}

// judge waits until the answer about a ConfigMap is the expected one.
func (w *world) judge(rt *fairlead.Runtime, name string, j judge.Case) why.Answer {
	w.Helper()
	return j.Await(w.T, name, patience, func() (why.Answer, error) {
		return rt.Why(w.Context(), why.Object{Kind: "ConfigMap", Namespace: w.ns, Name: name})
	})
}

// steps runs a program whose objects are fibers of these steps.
func steps(nodes ...flow.Node[configMap]) func(*world) *fairlead.Runtime {
	return func(w *world) *fairlead.Runtime { return w.fibers(flow.New("bring", nodes...)) }
}

type fiberOf = *flow.Fiber[configMap]

// answers makes the API server answer requests to Secrets with a failure.
func answers(code int, reason, message string) func(*world) *fairlead.Runtime {
	return func(w *world) *fairlead.Runtime {
		w.cfg = disturb.Config(w.cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if !strings.HasSuffix(r.URL.Path, "/secrets") {
				return next.RoundTrip(r)
			}
			return status(r, code, reason, message), nil
		})
		return w.creates()
	}
}

func TestJudged(t *testing.T) {
	t.Parallel()
	hour := time.Hour
	never := flow.Func(func(context.Context) (bool, error) { return false, nil }, hour)
	blocks := steps(flow.Step("block", func(ctx context.Context, f fiberOf) flow.Next {
		<-ctx.Done()
		return f.Fail(ctx.Err())
	}))
	for name, j := range map[string]judged{
		"panic": {
			run: does(func(context.Context, *client.Client, *configMap) error { panic("no tenant") }),
			Case: judge.Case{
				Reason: "a reconciler that panics each time says that it does",
				Want:   why.BackOff, Message: "no tenant", Advice: "log",
				Evidence: []string{"error=panic", "attempts="},
			},
		},
		"exhausted": {
			run: does(fails(errors.New("no route")), reconcile.MaxAttempts(2),
				reconcile.WithBackoff(reconcile.Backoff{Base: time.Millisecond})),
			Case: judge.Case{
				Reason: "the attempts are used up: nothing comes until the object changes",
				Want:   why.BackOff, Message: "not retried until", Until: -1,
				Advice: "Correct the object", Evidence: []string{"error=no route", "class=stopped"},
			},
		},
		"terminal step": {
			run: steps(flow.Step("order", func(_ context.Context, f fiberOf) flow.Next {
				return f.Fail(reconcile.AsTerminal(errors.New("no such size")))
			}, flow.Retry(flow.Backoff{}))),
			Case: judge.Case{
				Reason: "a step that fails for good ends the fiber, and nothing tries again",
				Want:   why.BackOff, Message: "not retried until", Until: -1,
				Evidence: []string{"error=no such size"},
			},
		},
		"step fails": {
			run: steps(flow.Step("order", func(_ context.Context, f fiberOf) flow.Next {
				return f.Fail(errors.New("the shop is shut"))
			})),
			Case: judge.Case{
				Reason: "a fiber that has failed is begun again after a while",
				Want:   why.BackOff, Evidence: []string{"error=the shop is shut", "attempts="},
			},
		},
		"step deadline": {
			run: steps(flow.Step("order", func(ctx context.Context, f fiberOf) flow.Next {
				return f.Await(never)
			}, flow.Deadline(300*time.Millisecond))),
			Case: judge.Case{
				Reason: "a step whose time is over",
				Want:   why.DeadlinePassed, Evidence: []string{"error=order", "attempts="},
			},
		},
		"await timeout": {
			run: steps(flow.Step("order", func(ctx context.Context, f fiberOf) flow.Next {
				return f.Await(never,
					flow.Timeout(100*time.Millisecond))
			})),
			Case: judge.Case{
				Reason: "a wait whose time is over, again and again",
				Want:   why.DeadlinePassed, Evidence: []string{"error=order"},
			},
		},
		"child flow": {
			run: steps(flow.Step("all", func(_ context.Context, f fiberOf) flow.Next {
				kid := flow.New("kid", flow.Step("await", func(_ context.Context, f fiberOf) flow.Next {
					c, _ := flow.Use[*client.Client](f)
					k := client.Key{Namespace: f.Packet.Namespace, Name: "web"}
					return f.Await(client.Condition[corev1.Pod](c, k, "Ready"))
				}))
				return f.Fork([]flow.Child{kid.Child("kid", f.Packet)})
			})),
			Case: judge.Case{
				Reason: "a fiber waits for its child, which waits for a condition",
				Want:   why.Parked, Message: "children", Then: []why.Type{why.Parked},
			},
		},
		"never": {
			run: steps(flow.Step("await", func(_ context.Context, f fiberOf) flow.Next {
				return f.Await(never)
			})),
			Case: judge.Case{
				Reason: "a condition that never holds",
				Want:   why.Parked, Message: "checked every 1h0m0s", Evidence: []string{"step=bring/await"},
			},
		},
		"poll fails": {
			run: steps(flow.Step("await", func(_ context.Context, f fiberOf) flow.Next {
				return f.Await(flow.Func(func(context.Context) (bool, error) {
					return false, errors.New("no route to the crm")
				}, 50*time.Millisecond))
			})),
			Case: judge.Case{
				Reason: "a condition that cannot be looked at",
				Want:   why.BackOff, Evidence: []string{"error=no route to the crm"},
			},
		},
		"delay": {
			run: steps(flow.Step("sleep", func(_ context.Context, f fiberOf) flow.Next { return f.Delay(hour) }),
				flow.Step("end", func(_ context.Context, f fiberOf) flow.Next { return f.End() })),
			Case: judge.Case{
				Reason: "a step that lets time pass is no trouble",
				Want:   why.Parked, Message: "sleeps until", Until: hour, Progress: true,
			},
		},
		"panicking step": {
			run: steps(flow.Step("burst", func(context.Context, fiberOf) flow.Next { panic("nil map") })),
			Case: judge.Case{
				Reason: "a step that panics",
				Want:   why.BackOff, Message: "nil map", Evidence: []string{"error=panic"},
			},
		},
		"step at work": {
			run: blocks,
			Case: judge.Case{
				Reason: "a step that does not return",
				Want:   why.Parked, Message: "has been running since", Evidence: []string{"step=bring/block"},
			},
		},
		"at work": {
			run: blocks,
			Case: judge.Case{
				Reason: "what is worked on now has not ended",
				Want:   why.Parked, Progress: true,
			},
		},
		"deadline": {
			run: does(func(ctx context.Context, _ *client.Client, _ *configMap) error {
				<-ctx.Done()
				return context.Cause(ctx)
			}, reconcile.Deadline(100*time.Millisecond)),
			Case: judge.Case{
				Reason: "a reconciliation whose time is over",
				Want:   why.DeadlinePassed, Evidence: []string{"attempts=", "error="},
			},
		},
		"too large": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				s := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "large"}}
				s.Annotations = map[string]string{"a": strings.Repeat("x", 4<<20)}
				return c.Create(ctx, s)
			}),
			Case: judge.Case{
				Reason: "what is written is too large for etcd",
				Want:   why.BackOff, Evidence: []string{"verb=create", "status="}, Advice: "smaller",
			},
		},
		"no space": {
			run: answers(http.StatusInternalServerError, "InternalError", "etcdserver: mvcc: database space exceeded"),
			Case: judge.Case{
				Reason: "etcd takes nothing any more",
				Want:   why.BackOff, Evidence: []string{"status=500", "error=space exceeded"}, Advice: "etcd",
			},
		},
		"conversion": {
			run: answers(http.StatusInternalServerError, "InternalError", "conversion webhook for example.com/v1, "+
				"Kind=Gateway failed: Post \"https://conv.default.svc:443/convert\": dial tcp: connection refused"),
			Case: judge.Case{
				Reason: "nobody converts the objects of a kind",
				Want:   why.BackOff, Evidence: []string{"webhook=example.com/v1, Kind=Gateway"}, Advice: "conversion",
			},
		},
		"unauthorized": {
			run: answers(http.StatusUnauthorized, "Unauthorized", "Unauthorized"),
			Case: judge.Case{
				Reason: "the token of the program is not taken any more",
				Want:   why.BackOff, Evidence: []string{"status=401"}, Advice: "token",
			},
		},
		"invalid": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				return c.Create(ctx, secret(m.Namespace, "No_Name"))
			}),
			Case: judge.Case{
				Reason: "what is written is refused by the schema",
				Want:   why.BackOff, Evidence: []string{"status=422", "error=No_Name"}, Advice: "invalid",
			},
		},
		"no namespace": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				return c.Create(ctx, secret("no-such-place", "s"))
			}),
			Case: judge.Case{
				Reason: "what is written is for a namespace that does not exist",
				Want:   why.BackOff, Evidence: []string{"status=404", "error=no-such-place"}, Advice: "does not exist",
			},
		},
		"name taken": {
			run: func(w *world) *fairlead.Runtime {
				_, err := w.kube.CoreV1().Secrets(w.ns).Create(w.Context(), secret(w.ns, "x"), metav1.CreateOptions{})
				if err != nil {
					w.Fatal(err)
				}
				return w.creates()
			},
			Case: judge.Case{
				Reason: "a name that a program wants is somebody else's",
				Want:   why.Conflict, Message: "already exists", Advice: "another name",
				Evidence: []string{"status=409", "reason=AlreadyExists"},
			},
		},
		"nothing there": {
			run: does(func(ctx context.Context, c *client.Client, m *configMap) error {
				return c.Live().Get(ctx, client.Key{Namespace: m.Namespace, Name: "login"}, &corev1.Secret{})
			}),
			Case: judge.Case{
				Reason: "what is read does not exist",
				Want:   why.BackOff, Evidence: []string{"status=404", "error=login"}, Advice: "does not exist",
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
