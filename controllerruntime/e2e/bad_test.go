package e2e_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-io/fairlead/controllerruntime"
	"github.com/fairlead-io/fairlead/controllerruntime/internal/peer"
	"github.com/fairlead-io/fairlead/internal/store"
)

func TestOptionsThatContradictEachOther(t *testing.T) {
	t.Parallel()
	cfg := env.Config(t)
	theirs, err := store.NewCache(store.CacheOptions{Config: cfg})
	peer.Must(t, err)
	secrets := schema.GroupKind{Kind: "Secret"}
	file := filepath.Join(t.TempDir(), "file")
	peer.Must(t, os.WriteFile(file, nil, 0o600))
	for _, tc := range []struct {
		reason string
		opt    controllerruntime.Options
		says   string
	}{
		{
			"stores of the caller, with a directory",
			controllerruntime.Options{Stores: theirs, Dir: t.TempDir()},
			"Stores, and Dir",
		},
		{
			"stores of the caller, with a registry",
			controllerruntime.Options{Stores: theirs, Registry: prometheus.NewRegistry()},
			"Stores, and Dir or Registry",
		},
		{
			"a field that is needed",
			controllerruntime.Options{Drop: map[schema.GroupKind][]string{secrets: {"metadata.name"}}},
			"metadata.name",
		},
		{
			"a field that the kind does not have",
			controllerruntime.Options{Drop: map[schema.GroupKind][]string{secrets: {"dta"}}},
			"there is no such field in v1.Secret",
		},
		{
			"a path below a scalar field",
			controllerruntime.Options{Drop: map[schema.GroupKind][]string{secrets: {"metadata.anotations[a]"}}},
			"metadata.anotations",
		},
		{
			"a directory that cannot be made",
			controllerruntime.Options{Dir: filepath.Join(file, "in")},
			"Options.Dir",
		},
		{"a malformed path", controllerruntime.Options{Drop: map[schema.GroupKind][]string{{}: {"data["}}}, "data["},
	} {
		if _, err := tc.opt.NewCache(cfg, cache.Options{}); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: the error is %v", tc.reason, err)
		}
	}
	plain, err := cache.New(cfg, cache.Options{})
	peer.Must(t, err)
	_, err = controllerruntime.NewClient(cfg, client.Options{Cache: &client.CacheOptions{Reader: plain}})
	if err == nil || !strings.Contains(err.Error(), "NewCache") {
		t.Errorf("a client of a foreign cache: %v", err)
	}
	if _, err = controllerruntime.NewClient(cfg, client.Options{}); err != nil {
		t.Errorf("a client without a cache: %v", err)
	}
	if controllerruntime.Stores(plain) != nil {
		t.Error("a cache of controller-runtime has stores")
	}
}

// A type unknown to the scheme gives the error of controller-runtime.
func TestSchemeWithoutTheType(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := open(t, p, cache.Options{Scheme: runtime.NewScheme()})
		_, err := w.Cache.GetInformer(w.Ctx, &corev1.ConfigMap{})
		if !runtime.IsNotRegisteredError(err) {
			t.Errorf("the informer of an unknown type: %v", err)
		}
		if err := w.Client.Create(w.Ctx, w.ConfigMap("a")); !runtime.IsNotRegisteredError(err) {
			t.Errorf("the create of an unknown type: %v", err)
		}
	})
}

// A failing transform leaves its object out, and stops nothing.
func TestBadTransforms(t *testing.T) {
	t.Parallel()
	for name, transform := range map[string]toolscache.TransformFunc{
		"fails":                func(any) (any, error) { return nil, errors.New("no") },
		"panics":               func(any) (any, error) { panic("no") },
		"returns another type": func(any) (any, error) { return &corev1.Secret{}, nil },
		"returns nothing":      func(any) (any, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, peer.Ours, cache.Options{DefaultTransform: func(o any) (any, error) {
				if cm, ok := o.(*corev1.ConfigMap); ok && cm.Name == "bad" {
					return transform(o)
				}
				return o, nil
			}})
			w.Create(w.ConfigMap("bad"), w.ConfigMap("good"))
			w.Start()
			err := w.Cache.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "bad"}, &corev1.ConfigMap{})
			if decode := (*store.DecodeError)(nil); !errors.As(err, &decode) {
				t.Errorf("the object is read with %v", err)
			}
			if got := w.Names(); len(got) != 1 || got[0] != "good" {
				t.Errorf("the list has %v", got)
			}
			e := peer.NewEvents()
			_, err = w.Informer(&corev1.ConfigMap{}).AddEventHandler(e)
			peer.Must(t, err)
			w.Want(e, "initial good ")
		})
	}
}

// An index function that fails or panics leaves its object out of that index.
func TestBadIndexFunctions(t *testing.T) {
	t.Parallel()
	w := start(t, peer.Ours, cache.Options{})
	bad := func(o client.Object) []string {
		if o.GetName() == "bad" {
			panic("no")
		}
		return []string{"x"}
	}
	peer.Must(t, w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "early", bad))
	w.Create(w.ConfigMap("bad"), w.ConfigMap("good"))
	w.Eventually("both are there", func() bool { return len(w.Names()) == 2 })
	if got := w.Names(client.MatchingFields{"early": "x"}); len(got) != 1 || got[0] != "good" {
		t.Errorf("the index has %v", got)
	}
	if err := w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "late", bad); err == nil ||
		!strings.Contains(err.Error(), "panic") {
		t.Errorf("an index over an object that it panics on: %v", err)
	}
	peer.Must(t, w.Cache.IndexField(w.Ctx, &corev1.ConfigMap{}, "late",
		func(client.Object) []string { return []string{"y"} }))
}

const crashes = "FAIRLEAD_TEST_CRASH"

// A handler that panics ends the process, as under client-go.
func TestHandlerThatPanics(t *testing.T) {
	if name := os.Getenv(crashes); name != "" {
		crash(t, map[string]peer.Peer{peer.Stock.Name: peer.Stock, peer.Ours.Name: peer.Ours}[name])
		return
	}
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		env.Config(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHandlerThatPanics$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), crashes+"="+p.Name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "panic: the handler says no") {
			t.Errorf("the process has ended with %v:\n%s", err, out)
		}
	})
}

func crash(t *testing.T, p peer.Peer) {
	w := start(t, p, cache.Options{})
	w.Create(w.ConfigMap("a"))
	_, err := w.Informer(&corev1.ConfigMap{}).AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { panic("the handler says no") },
	})
	peer.Must(t, err)
	<-w.Ctx.Done()
}

// A second start is refused, and the first one continues.
func TestSecondStart(t *testing.T) {
	peer.Alike(t, func(t *testing.T, p peer.Peer) {
		w := start(t, p, cache.Options{})
		if err := w.Cache.Start(context.Background()); err == nil {
			t.Error("the cache was started again")
		}
		w.Create(w.ConfigMap("a"))
		w.Eventually("the cache continues", func() bool { return w.Has("a") })
	})
}
