package fairlead_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
)

// lineOf returns file:line of its caller, as errors name it.
func lineOf() string {
	_, file, line, _ := runtime.Caller(1)
	parts := strings.Split(file, "/")
	return fmt.Sprintf("%s/doors_test.go:%d", parts[len(parts)-2], line)
}

// door is a way to declare a source.
type door struct {
	name    string
	declare func(rt *fairlead.Runtime, option cache.Option) (line string)
}

func doorsOf[T any, P client.ObjectOf[T]]() []door {
	const Objects = observe.Selector("objects")
	known := func(rt *fairlead.Runtime) { observe.Known[T, P](rt, Objects) }
	ignore := reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
		return reconcile.Done, nil
	})
	return []door{
		{"observe.Source", func(rt *fairlead.Runtime, option cache.Option) string {
			known(rt)
			_, line := observe.Source[T, P](rt, Objects, option), lineOf()
			return line
		}},
		{"observe.SourceFunc", func(rt *fairlead.Runtime, option cache.Option) string {
			known(rt)
			find := func(context.Context) ([]cache.Option, error) { return []cache.Option{option}, nil }
			_, line := observe.SourceFunc[T, P](rt, Objects, find), lineOf()
			return line
		}},
		{"observe.SourceOfKind", func(rt *fairlead.Runtime, option cache.Option) string {
			kinds, _, _ := rt.Client().Scheme().ObjectKinds(P(new(T)))
			observe.OnObject(rt, Objects, func(context.Context, observe.ObjectEvent) error { return nil })
			_, line := observe.SourceOfKind(rt, Objects, kinds[0], option), lineOf()
			return line
		}},
		{"reconcile.Primary", func(rt *fairlead.Runtime, option cache.Option) string {
			fn := reconcile.Func[T](func(context.Context, *T) (reconcile.Result, error) { return reconcile.Done, nil })
			_, line := reconcile.New[T, P](rt, "objects", fn, reconcile.Primary(reconcile.From(option))), lineOf()
			return line
		}},
		{"reconcile.Owns", func(rt *fairlead.Runtime, option cache.Option) string {
			_, line := reconcile.New(rt, "maps", ignore, reconcile.Owns[T, P](reconcile.From(option))), lineOf()
			return line
		}},
		{"reconcile.Watches", func(rt *fairlead.Runtime, option cache.Option) string {
			keys := func(*T) []reconcile.Key { return nil }
			_, line := reconcile.New(rt, "maps", ignore, reconcile.Watches[T, P](keys, reconcile.From(option))), lineOf()
			return line
		}},
		{"dependent.Watch", func(rt *fairlead.Runtime, option cache.Option) string {
			g := dependent.For[corev1.ConfigMap]()
			dependent.Add[corev1.ConfigMap, T, P](g, "object", func(context.Context, *corev1.ConfigMap) (*T, error) {
				return new(T), nil
			}, dependent.Watch(reconcile.From(option)))
			_, line := g.Controller(rt, "maps"), lineOf()
			return line
		}},
	}
}

// TestInvalidSourcesAreRefused: Run returns a mistake in the options of a source, with the line of the declaration,
// whatever declares the source.
func TestInvalidSourcesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, want string
		option       cache.Option
		doors        []door
	}{
		{"an invalid namespace", `invalid namespace "Prod_1"`, cache.Namespaces("fine", "Prod_1"), doorsOf[corev1.Secret]()},
		{
			"an invalid label selector", `cannot parse label selector "a in b"`, cache.Labels("a in b"),
			doorsOf[corev1.Secret](),
		},
		{"an invalid field selector", `cannot parse field selector "a"`, cache.Fields("a"), doorsOf[corev1.Secret]()},
		{
			"a namespace of a cluster-scoped kind", "cluster-scoped and cannot be restricted to namespaces (prod)",
			cache.Namespaces("prod"), doorsOf[corev1.Node](),
		},
	} {
		for _, d := range tc.doors {
			t.Run(tc.reason+" "+d.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, s *apiserver.Server) {
					for _, options := range [][]fairlead.Option{nil, {fairlead.WithDegraded()}} {
						rt := fairlead.New(s.Config(), options...)
						line := d.declare(rt, tc.option)
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a mistake is not retried
						defer cancel()
						err := rt.Run(ctx)
						if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), line) {
							t.Errorf("error %v, want %q and %q", err, tc.want, line)
						}
						if ctx.Err() != nil {
							t.Error("Run has not ended before its context")
						}
					}
				})
			})
		}
	}
}

// TestSourcesOfEveryKind: the namespaces of WithSource do not apply to cluster-scoped kinds, and all namespaces are no
// restriction.
func TestSourcesOfEveryKind(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		option cache.Option
	}{
		{"no namespaces", cache.Namespaces()},
		{"every namespace", cache.Namespaces("")},
	} {
		for _, d := range doorsOf[corev1.Node]() {
			t.Run(tc.reason+" "+d.name, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, s *apiserver.Server) {
					rt := fairlead.New(s.Config(), fairlead.WithSource(cache.Namespaces("prod")))
					d.declare(rt, tc.option)
					r := run(rt)
					time.Sleep(time.Second)
					if err := r.end(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestInvalidDefaultsOfSources checks the options of WithSource.
func TestInvalidDefaultsOfSources(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		for _, option := range []cache.Option{cache.Namespaces("Prod_1"), cache.Labels("a in b"), cache.Fields("a")} {
			err := fairlead.New(s.Config(), fairlead.WithSource(option)).Run(t.Context())
			if text := fmt.Sprint(err); !strings.Contains(text, "invalid namespace") && !strings.Contains(text, "cannot parse") {
				t.Errorf("error %v", err)
			}
		}
	})
}

// TestInvalidNamespacesAtRunTime checks the methods that change namespaces.
func TestInvalidNamespacesAtRunTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		origin := observe.Source[corev1.Secret](rt, "secrets")
		observe.Known[corev1.Secret](rt, "secrets")
		c := reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) { return reconcile.Done, nil },
		), reconcile.Owns[corev1.Node]())
		for _, set := range []func(...string) error{origin.SetNamespaces, c.SetNamespaces} {
			if err := set("Prod_1"); err == nil || !strings.Contains(err.Error(), `invalid namespace "Prod_1"`) {
				t.Errorf("error %v", err)
			}
			if err := set("prod"); err != nil {
				t.Error(err)
			}
		}
		r := run(rt)
		time.Sleep(time.Second)
		if state := c.Describe(0).State; state != "running" {
			t.Errorf("the controller, which owns objects of a cluster-scoped kind, is %s", state)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestInvalidRequestsOfACache checks the methods of a cache that open a source.
func TestInvalidRequestsOfACache(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := fairlead.New(s.Config())
		_, ofNodes := cache.AcquireFor[corev1.Node](rt.Cache(), cache.Namespaces("prod"))
		_, ofSecrets := rt.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("Secret"), cache.Namespaces("Prod_1"))
		_, ofLabels := cache.AcquireFor[corev1.Secret](rt.Cache(), cache.Labels("a in b"))
		for want, err := range map[string]error{
			"cluster-scoped": ofNodes, `invalid namespace "Prod_1"`: ofSecrets, "cannot parse label selector": ofLabels,
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		if err := run(rt).end(); err != nil {
			t.Error(err)
		}
	})
}
