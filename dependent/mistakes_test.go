package dependent_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// here returns file:line of its caller, as errors name it.
func here() string {
	_, _, line, _ := runtime.Caller(1)
	return fmt.Sprintf("dependent/mistakes_test.go:%d", line)
}

// TestMistakesNameTheirLine checks that an error about a node names the line that added it. Every error names the line
// that declares the controller.
func TestMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		declare func(g *dependent.Graph[gateway]) (lines []string)
		want    string
	}{
		{"a cycle names all of its nodes", func(g *dependent.Graph[gateway]) []string {
			a, atA := dependent.Add(g, "a", page), here()
			b, atB := dependent.Add(g, "b", page, dependent.After(a)), here()
			a.After(b)
			return []string{atA, atB}
		}, "a cycle"},
		{"a node of another graph names both nodes", func(g *dependent.Graph[gateway]) []string {
			other, atOther := dependent.Add(dependent.For[gateway](), "other", page), here()
			_, atOwn := dependent.Add(g, "own", page, dependent.After(other)), here()
			return []string{atOther, atOwn}
		}, `"other"`},
		{"a node of no graph", func(g *dependent.Graph[gateway]) []string {
			other, atOther := dependent.Add(nil, "other", page), here()
			_, atOwn := dependent.Add(g, "own", page, dependent.After(other)), here()
			return []string{atOther, atOwn}
		}, `"other"`},
		{"two nodes of one name", func(g *dependent.Graph[gateway]) []string {
			_, first := dependent.Add(g, "page", page), here()
			_, second := dependent.Add(g, "page", page), here()
			return []string{first, second}
		}, `"page"`},
		{"a type that the scheme does not know", func(g *dependent.Graph[gateway]) []string {
			_, at := dependent.Add(g, "a", unknownPage), here()
			return []string{at}
		}, `node "a"`},
		{"a generic child without a kind", func(g *dependent.Graph[gateway]) []string {
			generic := func(context.Context, *gateway) ([]*unstructured.Unstructured, error) { return nil, nil }
			_, at := dependent.AddSet(g, "a", generic), here()
			return []string{at}
		}, "needs its Kind"},
		{"a nil function", func(g *dependent.Graph[gateway]) []string {
			_, at := dependent.Add[gateway, corev1.ConfigMap](g, "a", nil), here()
			return []string{at}
		}, "is nil"},
		{"a nil function of an external resource", func(g *dependent.Graph[gateway]) []string {
			_, at := dependent.AddExternal(g, "a", dependent.External[gateway, string]{}), here()
			return []string{at}
		}, "are required"},
		{"an invalid selector", func(g *dependent.Graph[gateway]) []string {
			_, at := dependent.Add(g, "a", page, dependent.Labels("a in b")), here()
			return []string{at}
		}, "its labels"},
		{"an invalid selector of the watch", func(g *dependent.Graph[gateway]) []string {
			_, at := dependent.Add(g, "a", page, dependent.Watch(reconcile.From(cache.Fields("a in b")))), here()
			return []string{at}
		}, "cannot parse field selector"},
		{"a function of the watch for another type", func(g *dependent.Graph[gateway]) []string {
			ofSecrets := reconcile.If(func(*corev1.Secret) bool { return true })
			_, at := dependent.Add(g, "a", page, dependent.Watch(ofSecrets)), here()
			return []string{at}
		}, "v1.Secret"},
		{"no node", func(*dependent.Graph[gateway]) []string { return nil }, "no node"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			h := newCheckingHost(t)
			g := dependent.For[gateway]().Engine(h.engine)
			lines := tc.declare(g)
			_, at := g.Controller(h, "gateways"), here()
			h.wantMistake(tc.want, append(lines, at)...)
		})
	}
}

// TestMistakesOfTheGraph checks the errors that concern no node.
func TestMistakesOfTheGraph(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		declare func(h *checkingHost) (lines []string)
		want    string
	}{
		{"a nil graph", func(h *checkingHost) []string {
			_, at := (*dependent.Graph[gateway])(nil).Controller(h, "gateways"), here()
			return []string{at}
		}, "it is nil"},
		{"a graph that For has not made", func(h *checkingHost) []string {
			_, at := new(dependent.Graph[gateway]).Controller(h, "gateways"), here()
			return []string{at}
		}, "dependent.For"},
		{"a node that is added too late", func(h *checkingHost) []string {
			g := dependent.For[gateway]().Engine(h.engine)
			dependent.Add(g, "page", page)
			_, at := g.Controller(h, "gateways"), here()
			_, late := dependent.Add(g, "late", page), here()
			return []string{at, late}
		}, `node "late"`},
		{"a graph that is declared twice", func(h *checkingHost) []string {
			g := dependent.For[gateway]().Engine(h.engine)
			dependent.Add(g, "page", page)
			_, first := g.Controller(h, "first"), here()
			_, second := g.Controller(h, "second"), here()
			return []string{first, second}
		}, "twice"},
		{"no engine", func(h *checkingHost) []string {
			g := dependent.For[gateway]()
			dependent.Add(g, "page", page)
			_, at := g.Controller(h, "gateways"), here()
			return []string{at}
		}, "no engine"},
		{"a limit of nothing", func(h *checkingHost) []string {
			g := dependent.For[gateway]().Engine(h.engine).Limit(0)
			dependent.Add(g, "page", page)
			_, at := g.Controller(h, "gateways"), here()
			return []string{at}
		}, "a limit of 0"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			h := newCheckingHost(t)
			h.wantMistake(tc.want, tc.declare(h)...)
		})
	}
}

// TestNilGraphOnPlainHost checks that a host without checks returns the error when it runs.
func TestNilGraphOnPlainHost(t *testing.T) {
	bubble(t, func(b *bench) {
		b.host = testbed.NewHost(b.t, b.server.Config(), testbed.Mapper(testbed.Resources()))
		b.engine = newEngine()
		(*dependent.Graph[gateway])(nil).Controller(b.host, "gateways")
		b.host.Start(b.t.Context())
		b.settle()
		err := b.host.Stop()
		b.host = nil
		if err == nil || !strings.Contains(err.Error(), "it is nil") {
			t.Errorf("got %v", err)
		}
		if err := b.engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// checkingHost is a host that collects the checks of declarations. It does not run.
type checkingHost struct {
	*testbed.Host
	t      *testing.T
	engine *flow.Engine
	checks []func() error
}

func newCheckingHost(t *testing.T) *checkingHost {
	t.Helper()
	cfg := &rest.Config{Host: "http://127.0.0.1:1"}
	h := &checkingHost{
		Host: testbed.NewHost(t, cfg, testbed.Mapper(testbed.Resources())), t: t, engine: newEngine(),
	}
	t.Cleanup(func() {
		h.Client().Close()
		if err := h.engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// Check implements reconcile.Checker.
func (h *checkingHost) Check(fn func() error) { h.checks = append(h.checks, fn) }

// wantMistake checks that the checks return an error with a text and with these lines.
func (h *checkingHost) wantMistake(want string, lines ...string) {
	h.t.Helper()
	var errs []error
	for _, check := range h.checks {
		errs = append(errs, check())
	}
	err := errors.Join(errs...)
	if err == nil {
		h.t.Fatal("no error")
	}
	if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "invalid ") {
		h.t.Errorf("error %v, want %q", err, want)
	}
	for _, line := range lines {
		if !strings.Contains(err.Error(), line) {
			h.t.Errorf("the error does not name %s: %v", line, err)
		}
	}
}

// notInScheme is a type that the scheme does not know.
type notInScheme struct{ corev1.ConfigMap }

func unknownPage(context.Context, *gateway) (*notInScheme, error) { return nil, nil }

var _ reconcile.Checker = (*checkingHost)(nil)
