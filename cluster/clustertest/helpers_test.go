package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// recorder is a test whose failures are recorded.
type recorder struct {
	testing.TB
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()           {}
func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// failures runs fn as a test and returns its failures.
func failures(t *testing.T, fn func(t testing.TB)) []string {
	t.Helper()
	r, done := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	for _, fn := range r.cleanups {
		fn()
	}
	return r.failures
}

func expect(t *testing.T, reason string, got []string, want string) {
	t.Helper()
	if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
		t.Errorf("%s: the failures are %q, want %q", reason, got, want)
	}
}

type program func(ctx context.Context) error

func (p program) Run(ctx context.Context) error { return p(ctx) }

func TestRun(t *testing.T) {
	t.Parallel()
	ended := false
	expect(t, "a program that ends with its context", failures(t, func(t testing.TB) {
		Run(t, program(func(ctx context.Context) error { <-ctx.Done(); ended = true; return nil }))
	}), "")
	if !ended {
		t.Error("the program still runs after the test")
	}
	expect(t, "a program that fails", failures(t, func(t testing.TB) {
		Run(t, program(func(context.Context) error { return errors.New("no port") }))
	}), "no port")
}

func TestEventually(t *testing.T) {
	t.Parallel()
	calls := 0
	expect(t, "it holds at the third call", failures(t, func(t testing.TB) {
		Eventually(t, "the third call", func(context.Context) error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		})
	}), "")
	if calls != 3 {
		t.Errorf("%d calls", calls)
	}
}

func TestCheckFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	check := func(content string, update bool) []string {
		return failures(t, func(t testing.TB) { CheckFile(t, file, []byte(content), update) })
	}
	expect(t, "a missing file", check("a\n", false), "no such file")
	expect(t, "an update", check("a\n", true), "")
	expect(t, "the same content", check("a\n", false), "")
	expect(t, "other content", check("b\n", false), "run make manifests")
}

func TestDecode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file.yaml")
	decode := func(text string) (*corev1.ConfigMap, []string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		obj := &corev1.ConfigMap{}
		return obj, failures(t, func(t testing.TB) { Decode(t, file, obj) })
	}
	obj, failed := decode("metadata: {name: a}\ndata: {k: v}\n")
	if expect(t, "a ConfigMap", failed, ""); obj.Name != "a" || obj.Data["k"] != "v" {
		t.Errorf("got %v", obj)
	}
	_, failed = decode("spec: {}\n")
	expect(t, "an unknown field", failed, "unknown field")
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	keep := func(_ context.Context, in *corev1.Secret) (*corev1.Secret, error) { return in.DeepCopy(), nil }
	drop := func(_ context.Context, in *corev1.Secret) (*corev1.Secret, error) {
		out := in.DeepCopy()
		out.Type = ""
		return out, nil
	}
	refuse := func(context.Context, *corev1.Secret) (*corev1.Secret, error) { return nil, errors.New("no type") }
	for reason, tc := range map[string]struct {
		to, from func(context.Context, *corev1.Secret) (*corev1.Secret, error)
		want     string
	}{
		"all fields are kept":           {keep, keep, ""},
		"a lost field":                  {drop, keep, "is another object"},
		"a field lost on the way back":  {keep, drop, "is another object"},
		"an object that is not decoded": {refuse, keep, "cannot convert"},
	} {
		expect(t, reason, failures(t, func(t testing.TB) { RoundTrip(t, tc.to, tc.from) }), tc.want)
	}
}

// The times of package time in the status of an object with a flow are compared as instants.
func TestRoundTripOfTimes(t *testing.T) {
	t.Parallel()
	type position struct {
		Step  string
		Begun time.Time
	}
	keep := func(_ context.Context, in *position) (*position, error) {
		return &position{in.Step, in.Begun.Local()}, nil
	}
	later := func(_ context.Context, in *position) (*position, error) {
		return &position{in.Step, in.Begun.Add(time.Second)}, nil
	}
	expect(t, "the same instants", failures(t, func(t testing.TB) { RoundTrip(t, keep, keep) }), "")
	expect(t, "another instant", failures(t, func(t testing.TB) { RoundTrip(t, keep, later) }), "is another object")
}

// Namespaces are applied first, and definitions and files of kustomize are skipped.
func TestObjectsIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\n" +
			"kind: Secret\nmetadata: {name: b}\n",
		"crd.yaml":           "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n",
		"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
		"z.yaml":             "apiVersion: v1\nkind: Namespace\nmetadata: {name: c}\n",
		"notes.txt":          "{",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := objectsIn([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, o.GetName())
	}
	if got := strings.Join(names, " "); got != "c a b" {
		t.Errorf("the objects are %s", got)
	}
	for _, wrong := range []string{filepath.Join(dir, "notes.txt"), filepath.Join(dir, "absent"), t.TempDir()} {
		if _, err := objectsIn([]string{wrong}); err == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
}
