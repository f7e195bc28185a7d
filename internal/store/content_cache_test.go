package store_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// idle returns a cache that does not run.
func idle(t *testing.T, contents map[schema.GroupKind]store.Content) *store.Cache {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Secret", "Pod", "ConfigMap"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	c, err := store.NewCache(store.CacheOptions{
		Config: &rest.Config{Host: "127.0.0.1:1"}, Scheme: scheme.Scheme, Mapper: mapper, Linger: -1, Contents: contents,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, c *store.Cache, req store.Request) *store.Handle {
	t.Helper()
	h, err := c.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Release)
	return h
}

func same(o any) (any, error) { return o, nil }

// Two requests share a store if both get the same content from it.
func TestContentsShareAStore(t *testing.T) {
	t.Parallel()
	note := "metadata.annotations[a.b/note]"
	type content = store.Content
	for _, test := range []struct {
		reason        string
		first, second store.Content
		share         bool
	}{
		{"no content", content{}, content{}, true},
		{"only one keeps managedFields", content{ManagedFields: true}, content{}, false},
		{"both keep them", content{ManagedFields: true}, content{ManagedFields: true}, true},
		{"only one drops a field", content{}, content{Drop: []string{"data"}}, false},
		{
			"both drop the same, written in two ways",
			content{Drop: []string{"data", note}},
			content{Drop: []string{note, "data.x", "[data]"}},
			true,
		},
		{"one drops more", content{Drop: []string{"data"}}, content{Drop: []string{"data", "type"}}, false},
		{"one has a transform", content{Transform: same}, content{}, false},
		{"both have the same transform", content{Transform: same}, content{Transform: same}, false},
		{"metadata of whole objects", content{}, content{Metadata: true}, true},
		{"whole objects of metadata", content{Metadata: true}, content{}, false},
		{"metadata of objects that lack other fields", content{Drop: []string{"data"}}, content{Metadata: true}, true},
		{"metadata of objects without some of it", content{Drop: []string{"data", note}}, content{Metadata: true}, false},
		{"the same metadata", content{Drop: []string{"data", note}}, content{Metadata: true, Drop: []string{note}}, true},
		{"metadata with managedFields of objects without", content{}, content{Metadata: true, ManagedFields: true}, false},
		{"metadata without managedFields of objects with", content{ManagedFields: true}, content{Metadata: true}, false},
		{"metadata of transformed objects", content{Transform: same}, content{Metadata: true}, false},
		{
			"dropping a part of a dropped field changes nothing",
			content{Metadata: true, Drop: []string{"data"}},
			content{Metadata: true},
			true,
		},
	} {
		c := idle(t, nil)
		first := open(t, c, store.Request{Kind: secretKind, Content: test.first})
		second := open(t, c, store.Request{Kind: secretKind, Content: test.second})
		if share := first.Store == second.Store; share != test.share {
			t.Errorf("%s: shared: %v", test.reason, share)
		}
		otherScope := []source.Option{source.Namespaces("x")}
		if third := open(t, c, store.Request{
			Kind: secretKind, Content: test.second,
			Options: otherScope,
		}); third.Store == second.Store {
			t.Errorf("%s: shared with one of another namespace", test.reason)
		}
	}
}

// A request for metadata waits for an announced store of whole objects with the same metadata. Other requests do not
// wait.
func TestAnnouncedContents(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason       string
		whole, asked store.Content
		share        bool
	}{
		{"the same metadata", store.Content{Drop: []string{"data"}}, store.Content{Metadata: true}, true},
		{"other metadata", store.Content{ManagedFields: true}, store.Content{Metadata: true}, false},
		{"a transform of its own", store.Content{}, store.Content{Metadata: true, Transform: same}, false},
		{"objects with a transform of their own", store.Content{Transform: same}, store.Content{Metadata: true}, false},
	} {
		c := idle(t, nil)
		c.Expect(store.Request{Kind: secretKind, Content: test.whole})
		h := open(t, c, store.Request{Kind: secretKind, Content: test.asked})
		got := h.Options().Content
		if got.Metadata == test.share || (got.Transform != nil) != (test.asked.Transform != nil) {
			t.Errorf("%s: got %+v", test.reason, got)
		}
	}
}

// Stores that hold more of an object are read first.
func TestStoresWithMoreContentComeFirst(t *testing.T) {
	t.Parallel()
	c := idle(t, nil)
	metadata := open(t, c, store.Request{Kind: secretKind, Content: store.Content{Metadata: true}})
	less := open(t, c, store.Request{Kind: secretKind, Content: store.Content{Drop: []string{"data"}}})
	whole := open(t, c, store.Request{Kind: secretKind})
	some := open(t, c, store.Request{Kind: secretKind, Options: []source.Option{source.Labels("a=b")}})
	got := c.Stores(schema.GroupVersionResource{Version: "v1", Resource: "secrets"})
	if want := []*store.Store{whole.Store, less.Store, metadata.Store, some.Store}; !slices.Equal(got, want) {
		t.Errorf("the store with more content is not first")
	}
}

// The content of a kind holds for all its requests, and the content of a request is added to it.
func TestContentsOfKinds(t *testing.T) {
	t.Parallel()
	c := idle(t, map[schema.GroupKind]store.Content{
		{Kind: "Secret"}: {Drop: []string{"data"}, Transform: same},
		{}:               {ManagedFields: true},
	})
	secrets := open(t, c, store.Request{Kind: secretKind})
	if content := secrets.Options().Content; !slices.Equal(content.Drop, []string{"data"}) || content.ManagedFields {
		t.Errorf("secrets: %+v", content)
	}
	if again := open(t, c, store.Request{Kind: secretKind}); again.Store != secrets.Store {
		t.Error("the transform of a kind is not shared")
	}
	metadata := open(t, c, store.Request{Kind: secretKind, Content: store.Content{Metadata: true}})
	if metadata.Store != secrets.Store {
		t.Error("the transform of a kind is not shared with a request for metadata")
	}
	besides := store.Content{Drop: []string{"type"}, ManagedFields: true}
	more := open(t, c, store.Request{Kind: secretKind, Content: besides})
	if content := more.Options().Content; !slices.Equal(content.Drop, []string{"data", "type"}) || !content.ManagedFields {
		t.Errorf("secrets without a content of the request: %+v", content)
	}
	acquired, err := store.AcquireFor[corev1.Pod](c)
	if err != nil {
		t.Fatal(err)
	}
	defer acquired.Release()
	if content := acquired.Options().Content; !content.ManagedFields || len(content.Drop) > 0 {
		t.Errorf("pods: %+v", content)
	}
}

// A path that the Go type of the kind refutes fails when the store is opened. A malformed path fails when the cache is
// made.
func TestInvalidContents(t *testing.T) {
	t.Parallel()
	c := idle(t, nil)
	for path, want := range map[string]string{
		"spec.containers.env": "containers: it is a list",
		"metadata.name":       "the store finds objects by it",
		"a..b":                "malformed path",
	} {
		_, err := c.Open(store.Request{Kind: podKind, Content: store.Content{Drop: []string{path}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
	// An object in JSON may have a field that the Go type lacks.
	h := open(t, c, store.Request{Kind: podKind, Content: store.Content{Drop: []string{"spec.futureField"}}})
	if strings.Contains(h.Options().Scope, "protobuf") {
		t.Error("the watch uses protobuf, in which the field cannot be found")
	}
	_, err := store.NewCache(store.CacheOptions{
		Config: &rest.Config{}, Contents: map[schema.GroupKind]store.Content{{Kind: "Pod"}: {Drop: []string{"a."}}},
	})
	if err == nil || !strings.Contains(err.Error(), `kind "Pod": cannot drop fields: malformed path "a."`) {
		t.Errorf("error %v", err)
	}
}

// A file that an earlier run saved with more content is removed, unless a store of this run uses it.
func TestSavedFilesWithMoreContentAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	save := func(content store.Content, scope string) string {
		s := newStore(t, store.Options{Resource: resource, Content: content, Scope: scope})
		list(t, s.Sink(""), 5, thing{name: "a", uid: "u", version: 5})
		if err := s.Save(dir, "another cluster"); err != nil {
			t.Fatal(err)
		}
		return store.FileName(s)
	}
	more := []string{
		save(store.Content{}, ""), save(store.Content{}, "protobuf"), save(store.Content{ManagedFields: true}, ""),
		save(store.Content{Drop: []string{"data.x"}}, ""),
	}
	stay := []string{save(store.Content{}, "team-b"), save(store.Content{ManagedFields: true}, "team-b")}
	for _, name := range []string{"notes.txt", "configmaps.v1.x.store"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		stay = append(stay, name)
	}
	server := httptest.NewServer(&cluster{open: map[string]int{}, changed: make(chan struct{})})
	defer server.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(configMapKind, meta.RESTScopeNamespace)
	c, err := store.NewCache(store.CacheOptions{
		Config: &rest.Config{Host: server.URL}, Scheme: scheme.Scheme, Mapper: mapper, Dir: dir,
		Source: []source.Option{source.NoWatchList()},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	dropping := store.Content{Drop: []string{"data"}}
	h := open(t, c, store.Request{Kind: configMapKind, Unstructured: true, Content: dropping})
	<-h.Synced()
	for _, name := range more {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s exists: %v", name, err)
		}
	}
	for _, name := range stay {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
