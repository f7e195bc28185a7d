package fairlead_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

var errSilent = errors.New("no error")

// orNone returns err, or errSilent if it is nil.
func orNone(err error) error {
	if err == nil {
		return errSilent
	}
	return nil
}

var never = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)

// each returns the error that ends a sequence.
func each[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		if err != nil {
			return nil
		}
	}
	return errSilent
}

func positions(ctx context.Context, p flow.Positions) error {
	_, _, err := p.Load(ctx, "k")
	return orNone(errors.Join(err, p.Save(ctx, "k", flow.Position{}), p.Clear(ctx, "k")))
}

// inFiber runs fn in a step.
func inFiber(ctx context.Context, fn func(f *flow.Fiber[int])) error {
	return inStep(ctx, func(f *flow.Fiber[int]) flow.Next { fn(f); return f.Next() })
}

func inStep(ctx context.Context, fn func(f *flow.Fiber[int]) flow.Next) error {
	e := flow.NewEngine(flow.EngineOptions{})
	defer e.Close(context.WithoutCancel(ctx))
	h, err := flow.New("one", flow.Step("only", func(_ context.Context, f *flow.Fiber[int]) flow.Next { return fn(f) })).
		Start(ctx, e, new(int), flow.StartOptions{})
	if err != nil {
		return err
	}
	<-h.Done()
	return h.Err()
}

// parked returns the end of a fiber that awaits w.
func parked(ctx context.Context, w flow.Wait) error {
	return orNone(inStep(ctx, func(f *flow.Fiber[int]) flow.Next { return f.Await(w) }))
}

func declared(r *observe.Registry) *observe.Registry {
	observe.Source[corev1.Pod](r, "pods")
	observe.On(r, "pods", func(context.Context, observe.Event[corev1.Pod]) error { return nil })
	return r
}

func shown(h http.Handler) error {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusOK {
		return errors.New(w.Body.String())
	}
	return nil
}

// exported returns the functions and constructors of a package.
func exported(t *testing.T, dir, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no package in %s: %v", dir, err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.IsExported() {
				names = append(names, name+"."+fn.Name.Name)
			}
		}
	}
	return names
}

// protected calls fn and returns its panic as an error.
func protected(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panics: %v\n%s", v, debug.Stack())
		}
	}()
	return fn()
}

// TestNothing calls every constructor and function with nil and zero values. None panics, and each returns an error if
// it can.
func TestNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table := nothing(ctx)
	var all []string
	for _, dir := range []string{
		".", "admission", "alloc", "cache", "client", "call", "console", "dependent", "flow", "observe", "reconcile",
		"reconcile/lease",
		"rights", "internal/store",
	} {
		name := path.Base(dir)
		if dir == "." {
			name = "fairlead"
		}
		all = append(all, exported(t, dir, name)...)
	}
	slices.Sort(all)
	if diff := cmp.Diff(all, slices.Sorted(maps.Keys(table))); diff != "" {
		t.Errorf("the table differs from the exported functions: %s", diff)
	}
	for name, fn := range table {
		t.Run(name, func(t *testing.T) {
			if err := protected(fn); err != nil {
				t.Error(err)
			}
		})
	}
}

// callAll calls every method of v with only a context.
func callAll(ctx context.Context, t *testing.T, what string, v any, without ...string) {
	t.Helper()
	value := reflect.ValueOf(v)
	for i := range value.NumMethod() {
		m, name := value.Method(i), value.Type().Method(i).Name
		if slices.Contains(without, name) {
			continue
		}
		var in []reflect.Value
		for j := range m.Type().NumIn() {
			switch p := m.Type().In(j); {
			case m.Type().IsVariadic() && j == m.Type().NumIn()-1:
			case p == reflect.TypeFor[context.Context]():
				in = append(in, reflect.ValueOf(ctx))
			default:
				in = append(in, reflect.Zero(p))
			}
		}
		if err := protected(func() error { m.Call(in); return nil }); err != nil {
			t.Errorf("%s: %T.%s: %v", what, v, name, err)
		}
	}
}

// TestMethodsOfInvalidValues calls every method of three kinds of values: of a failed New, ended, and not begun. None
// panics.
func TestMethodsOfInvalidValues(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	failed := fairlead.New(nil)
	_, noCache := failed.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("Pod"))
	if !errors.Is(noCache, store.ErrNoCache) {
		t.Errorf("a nil cache returns %v", noCache)
	}
	idle := reconcile.New(failed, "idle", reconcile.Func[corev1.Pod](nil))
	ended := fairlead.New(s.Config())
	observe.Source[corev1.ConfigMap](ended, "maps")
	seen := observe.On(ended, "maps", func(context.Context, observe.Event[corev1.ConfigMap]) error { return nil })
	known := observe.Known[corev1.ConfigMap](ended, "maps")
	origin := observe.Source[corev1.Secret](ended, "secrets")
	worked := reconcile.New(ended, "maps",
		reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
			return reconcile.Done, nil
		}))
	handle, err := ended.Cache().Acquire(corev1.SchemeGroupVersion.WithKind("ConfigMap"), cache.Namespaces("default"))
	if err != nil {
		t.Fatal(err)
	}
	cursor := handle.Subscribe(store.SubscribeOptions{})
	stop := run(ended)
	<-handle.Synced()
	if err := stop.end(); err != nil {
		t.Fatal(err)
	}
	cursor.Close()
	handle.Release()
	engine := flow.NewEngine(flow.EngineOptions{})
	h, err := flow.New("f", flow.Step("s", flow.Do(func(context.Context, *int) error { return nil }))).Start(ctx, engine,
		new(int), flow.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-h.Done()
	if err := engine.Close(ctx); err != nil {
		t.Fatal(err)
	}
	election, err := lease.New(s.Config(), lease.Options{Namespace: "a", Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	cancel() // ends each call that would wait or run

	callAll(ctx, t, "after a failed New", failed)
	callAll(ctx, t, "after a failed New", failed.Host)
	callAll(ctx, t, "after a failed New", failed.Client())
	callAll(ctx, t, "after a failed New", failed.Client().Live())
	callAll(ctx, t, "after a failed New", failed.Client().Status())
	callAll(ctx, t, "after a failed New", failed.Cache())
	callAll(ctx, t, "after a failed New", failed.Calls())
	callAll(ctx, t, "after a failed New", failed.Observers())
	callAll(ctx, t, "after a failed New", idle)
	callAll(ctx, t, "of nothing", (*dependent.Graph[corev1.Pod])(nil))
	callAll(ctx, t, "of nothing", (*dependent.Node[corev1.Pod])(nil))
	callAll(ctx, t, "of nothing", &dependent.Node[corev1.Pod]{})
	callAll(ctx, t, "of nothing", dependent.For[corev1.Pod]())
	callAll(ctx, t, "of nothing", &dependent.Report{})
	callAll(ctx, t, "without a client", reconcile.NewRecorder(failed.Client(), ""))
	callAll(ctx, t, "after a failed Acquire", (*cache.Handle)(nil), promoted...)

	callAll(ctx, t, "after its end", ended)
	callAll(ctx, t, "after its end", ended.Host)
	callAll(ctx, t, "after its end", ended.Client())
	callAll(ctx, t, "after its end", ended.Client().Live())
	callAll(ctx, t, "after its end", ended.Client().Status())
	callAll(ctx, t, "after its end", ended.Cache())
	callAll(ctx, t, "after its end", ended.Calls())
	callAll(ctx, t, "after its end", ended.Observers())
	callAll(ctx, t, "after its end", seen)
	callAll(ctx, t, "after its end", known)
	callAll(ctx, t, "after its end", origin)
	callAll(ctx, t, "after its end", worked)
	callAll(ctx, t, "after its end", handle)
	callAll(ctx, t, "after its end", handle.Store)
	callAll(ctx, t, "after its end", handle.Snapshot())
	callAll(ctx, t, "after its end", cursor)
	callAll(ctx, t, "after its end", engine)
	callAll(ctx, t, "after its end", h)
	callAll(ctx, t, "never run", election)

	callAll(ctx, t, "zero", &flow.Engine{})
	callAll(ctx, t, "zero", flow.Handle{})
	callAll(ctx, t, "zero", &flow.Flow[int]{})
	callAll(ctx, t, "nil", (*flow.Flow[int])(nil))
	callAll(ctx, t, "zero", &cache.Cache{})
	callAll(ctx, t, "zero", observe.NewRegistry(observe.RegistryOptions{}))
}

// promoted are the methods that a handle has of its store. After a failed Acquire there is no store, and they panic
// like those of any nil.
var promoted = methods(reflect.TypeFor[*cache.Store]())

func methods(t reflect.Type) []string {
	var names []string
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return names
}
