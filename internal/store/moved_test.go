package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlog"
)

// runningCache is a cache that runs against a server, with its log.
type runningCache struct {
	*store.Cache
	t      *testing.T
	server *apiserver.Server
	log    *testlog.Book
}

// withCache runs a test on the fake clock.
func withCache(t *testing.T, opt store.CacheOptions, test func(c *runningCache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, err := apiserver.New(apiserver.Options{Pipe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		c := &runningCache{t: t, server: server, log: &testlog.Book{}}
		opt.Config, opt.Logger = server.Config(), c.log.Logger()
		if c.Cache, err = store.NewCache(opt); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		test(c)
	})
}

func (c *runningCache) open(namespaces ...string) *store.Handle {
	c.t.Helper()
	h, err := c.Open(store.Request{
		Resource: savedMaps, Namespaced: true,
		Options: []source.Option{source.Namespaces(namespaces...)},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

func (c *runningCache) put(ns, name string) {
	c.t.Helper()
	if _, err := c.server.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
		c.t.Fatal(err)
	}
}

// move changes the namespaces of a handle.
func (c *runningCache) move(h *store.Handle, namespaces ...string) {
	c.t.Helper()
	if err := h.SetNamespaces(namespaces...); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// The empty namespace stands for all namespaces, also in a list with others.
func TestAllNamespacesAmongOthers(t *testing.T) {
	t.Parallel()
	withCache(t, store.CacheOptions{Linger: -1}, func(c *runningCache) {
		c.put("a", "x")
		c.put("b", "x")
		check := func(what string, h *store.Handle) {
			t.Helper()
			synctest.Wait()
			if !h.HasSynced() || h.Len() != 2 || len(h.Statuses()) != 1 {
				t.Errorf("%s: synced %v, %d objects, scopes %+v", what, h.HasSynced(), h.Len(), h.Statuses())
			}
		}
		one := c.open("", "a")
		check("opened", one)
		two := c.open("b")
		c.move(two, "", "a")
		check("moved", two)
		if three := c.open(); three.Store != one.Store {
			t.Error("all namespaces are watched twice")
		}
	})
}

// A store is found by the namespaces that it covers now.
func TestMovedStoreIsFoundByItsNamespaces(t *testing.T) {
	t.Parallel()
	withCache(t, store.CacheOptions{Linger: -1}, func(c *runningCache) {
		registry := prometheus.NewRegistry()
		registry.MustRegister(store.Collector(func() []*store.Store { return c.Stores(savedMaps) }))
		labels := func() (got []string) {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Error(err)
			}
			for _, f := range families {
				if f.GetName() != "fairlead_store_objects" {
					continue
				}
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == "selector" {
							got = append(got, l.GetValue())
						}
					}
				}
			}
			return got
		}
		one := c.open("a")
		c.move(one, "b")
		again := c.open("a")
		if d := cmp.Diff([]string{"a", "b"}, labels()); d != "" {
			t.Errorf("a moved store, and one in its place: %s", d)
		}
		c.move(again, "b")
		if d := cmp.Diff([]string{"b", "b (2)"}, labels()); d != "" {
			t.Errorf("two stores moved to the same place: %s", d)
		}
		c.move(again)
		if got := c.Lookup(savedMaps); got[0] != again.Store {
			t.Error("the store of all namespaces does not come first")
		}
		again.Release()
		one.Release()
	})
}

// A released handle cannot change a store that other handles share or will share.
func TestReleasedHandle(t *testing.T) {
	t.Parallel()
	withCache(t, store.CacheOptions{Linger: time.Hour}, func(c *runningCache) {
		c.put("a", "x")
		one, two := c.open("a"), c.open("a")
		one.Release()
		if err := one.SetNamespaces("b"); err == nil {
			t.Error("it changed the namespaces")
		}
		if synctest.Wait(); two.Len() != 1 {
			t.Errorf("%d objects are left", two.Len())
		}
	})
}

// A store that is opened while its predecessor is being saved resumes from that file. Two stores never share a file.
func TestOpenedAgainWhileSaving(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[a]") // no pattern
	mkdir(t, dir)
	withCache(t, store.CacheOptions{Linger: -1, Dir: dir, SaveEvery: time.Minute}, func(c *runningCache) {
		for _, name := range strings.Fields("a b c d e f g h") {
			c.put("ns", name)
		}
		lists := func() int {
			n := 0
			for _, q := range c.server.Log().Requests {
				if q.Query.Get("sendInitialEvents") != "" || q.Verb == "list" && q.Query.Get("limit") != "1" {
					n++
				}
			}
			return n
		}
		h := c.open("ns")
		<-h.Synced()
		for range 10 {
			h.Release()
			h = c.open("ns")
			<-h.Synced()
		}
		if n := lists(); n != 1 || h.Len() != 8 {
			t.Errorf("%d lists for %d objects", n, h.Len())
		}
		c.move(h, "other")
		second := c.open("ns")
		<-second.Synced()
		before := lists()
		for range 5 { // both have something new to save
			c.put("ns", "again")
			c.put("other", "again")
			<-time.After(2 * time.Minute)
		}
		second.Release()
		second = c.open("ns")
		<-second.Synced()
		if n := lists(); n != before+1 {
			t.Errorf("%d lists of a store that may not be saved, want 1", n-before)
		}
		if log := c.log.String(); strings.Contains(log, "level=ERROR") ||
			strings.Contains(log, "saved state is unusable") && !strings.Contains(log, "no such file") {
			t.Error(log)
		}
		if files, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*", "*")); len(files) != 1 {
			t.Errorf("files: %v", files)
		}
	})
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// Half-written files of a crash are removed, even if the directory looks like a pattern.
func TestHalfWrittenFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[a]") // no pattern
	mkdir(t, dir)
	s := newStore(t, store.Options{})
	list(t, s.Sink(""), 9, obj("a", "u1", 5))
	if err := s.Save(dir, "cluster"); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.WriteFile(filepath.Join(dir, files[0].Name()+".123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newStore(t, store.Options{}).Load(dir, "cluster"); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

// A namespace that is removed before its watch began leaves no scope behind that SYNCED would wait for.
func TestNamespaceRemovedBeforeItsWatch(t *testing.T) {
	t.Parallel()
	withCache(t, store.CacheOptions{Linger: -1}, func(c *runningCache) {
		h := c.open("a")
		defer h.Release()
		for range 200 {
			for _, namespaces := range [][]string{{"a", "b", "c", "d"}, {"a"}} {
				if err := h.SetNamespaces(namespaces...); err != nil {
					t.Fatal(err)
				}
			}
			if scopes := h.Statuses(); len(scopes) != 1 {
				t.Fatalf("the scopes are %+v", scopes)
			}
		}
		if synctest.Wait(); !h.HasSynced() || len(h.Statuses()) != 1 {
			t.Errorf("synced %v, scopes %+v", h.HasSynced(), h.Statuses())
		}
	})
}
