package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// kubeconfigs keeps the data of kubeconfigs and of secrets with the label keep.
func kubeconfigs(_, name string, labels map[string]string) bool {
	_, labelled := labels["keep"]
	return labelled || strings.HasSuffix(name, "-kubeconfig")
}

var withoutData = store.Content{Drop: []string{"data"}, Keep: kubeconfigs}

func named(version int, name, word string, labels map[string]string) *corev1.Secret {
	s := secret(version, word)
	s.Name, s.UID, s.Labels, s.Annotations = name, s.UID[:24]+"aaaaaaaaaaaa", labels, nil
	return s
}

// TestKeepExceptsObjects: an object that Keep names has its fields, in lists, watches and own writes, and other objects
// do not. Each version is judged on its own.
func TestKeepExceptsObjects(t *testing.T) {
	t.Parallel()
	for _, enc := range []source.Encoding{source.JSON, source.Protobuf} {
		s := secrets(t, withoutData)
		sink := s.Sink("")
		r := sink.Replace()
		for i, name := range []string{"db", "one-kubeconfig"} {
			if err := r.Put(sent(t, enc, named(5+i, name, "hunter2", nil))); err != nil {
				t.Fatal(err)
			}
		}
		r.Commit(source.Commit{Version: "6"})
		check := func(when, name, data string) {
			t.Helper()
			rec, _ := s.Get(store.Key{Namespace: "team-a", Name: name})
			typed, err := store.As[corev1.Secret](rec)
			if err != nil || string(typed.Data["password"]) != data {
				t.Errorf("%v, %s: %s is read as %v, %v; want %q", enc, when, name, typed.Data, err, data)
			}
			var dropped []string
			if data == "" {
				dropped = []string{"data"}
			}
			if got := rec.Dropped(); !slices.Equal(got, dropped) {
				t.Errorf("%v, %s: dropped of %s is %q", enc, when, name, got)
			}
			if bytes.Contains(rec.Raw(), []byte("kubectl")) {
				t.Errorf("%v, %s: the managedFields are kept", enc, when)
			}
		}
		check("listed", "db", "")
		check("listed", "one-kubeconfig", "hunter2")
		change := func(version int, word string, labels map[string]string) {
			t.Helper()
			if err := sink.Apply(source.Modified, sent(t, enc, named(version, "db", word, labels))); err != nil {
				t.Fatal(err)
			}
		}
		change(7, "hunter3", map[string]string{"keep": ""})
		check("with the label", "db", "hunter3")
		change(8, "hunter4", map[string]string{"app": "db"})
		check("without the label", "db", "")
		if _, err := s.Put(source.JSON, sent(t, source.JSON, named(9, "db", "hunter5", nil)).Raw); err != nil {
			t.Fatal(err)
		}
		check("own write", "db", "")
		if _, err := s.Put(source.JSON, sent(t, source.JSON, named(10, "one-kubeconfig", "hunter6", nil)).Raw); err != nil {
			t.Fatal(err)
		}
		check("own write", "one-kubeconfig", "hunter6")
	}
}

// TestKeepGetsTheObject: the function gets namespace, name and labels, and an object for which it panics is refused.
func TestKeepGetsTheObject(t *testing.T) {
	t.Parallel()
	var got string
	s := secrets(t, store.Content{
		Drop: []string{"data"},
		Keep: func(namespace, name string, labels map[string]string) bool {
			if labels["app"] == "" {
				panic("no label")
			}
			got = fmt.Sprint(namespace, "/", name, " ", maps.Collect(maps.All(labels)))
			return true
		},
	})
	sink := s.Sink("")
	list(t, sink, 1)
	if err := sink.Apply(source.Added, sent(t, source.Protobuf, secret(5, "hunter2"))); err != nil {
		t.Fatal(err)
	}
	if want := "team-a/db map[app:db]"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	err := sink.Apply(source.Added, sent(t, source.JSON, named(6, "bad", "hunter2", nil)))
	if err == nil || !strings.Contains(err.Error(), "Keep panicked: no label") || s.Len() != 1 {
		t.Errorf("error %v, and %d objects", err, s.Len())
	}
	sink.Quarantine(source.Quarantined{Name: "bad", Raw: []byte(`{"metadata":{"name":"bad"},"data":"hunter2"}`), Err: err})
	if q := s.Quarantined(); len(q) != 1 || string(q[0].Raw) != `{"metadata":{"name":"bad"}}` {
		t.Errorf("quarantined is %q", q)
	}
}

// TestDroppedBytesAreFreed measures the memory of secrets with large data, of which one in ten is kept.
func TestDroppedBytesAreFreed(t *testing.T) {
	t.Parallel()
	const n, size = 100, 32 << 10
	random := make([]byte, size) // random, since it cannot be compressed
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		content   store.Content
		low, high int
	}{
		"all":       {store.Content{}, n * size, 2 * n * size},
		"one in 10": {withoutData, n * size / 10, n * size / 5},
		"none":      {store.Content{Drop: []string{"data"}}, 0, n * size / 20},
		"transformed only": {store.Content{Transform: func(o any) (any, error) {
			o.(*corev1.Secret).Data = nil
			return o, nil
		}}, n * size, 2 * n * size},
	} {
		s := secrets(t, test.content)
		r := s.Sink("").Replace()
		for i := range n {
			name := fmt.Sprintf("s%d", i)
			if i%10 == 0 {
				name += "-kubeconfig"
			}
			one := named(5+i, name, "", nil)
			one.UID = one.UID[:24] + "0"
			random[0], random[1] = byte(i), byte(i+1)
			one.Data["password"] = random
			if err := r.Put(sent(t, source.Protobuf, one)); err != nil {
				t.Fatal(err)
			}
		}
		r.Commit(source.Commit{Version: "1000"})
		s.Flush()
		raw := 0
		for rec := range s.Snapshot().All() {
			raw += len(rec.Raw())
		}
		if raw < test.low || raw > test.high {
			t.Errorf("%s: %d bytes are kept, want %d to %d", what, raw, test.low, test.high)
		}
		if live := int(s.MemoryStats().Live); live > test.high {
			t.Errorf("%s: %d bytes of memory, want at most %d", what, live, test.high)
		}
	}
}

// TestKeepIsNotSaved: a store with Keep neither saves nor loads, since the function of another run may differ.
func TestKeepIsNotSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := secrets(t, withoutData)
	list(t, s.Sink(""), 5)
	if err := s.Save(dir, "cluster"); !errors.Is(err, store.ErrKeepNotSaved) {
		t.Errorf("saved: %v", err)
	}
	if err := s.Load(dir, "cluster"); !errors.Is(err, store.ErrNotSaved) || !errors.Is(err, store.ErrKeepNotSaved) {
		t.Errorf("loaded: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files %v, %v", files, err)
	}
}

// TestKeepRemovesFilesWithMoreContent: a cache with a directory saves no store with Keep. It deletes saved files of the
// same objects, also for requests with a Transform.
func TestKeepRemovesFilesWithMoreContent(t *testing.T) {
	t.Parallel()
	for what, own := range map[string]bool{"content of the kind": false, "content of the request": true} {
		dir := t.TempDir()
		resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
		for _, scope := range []string{"", "protobuf", "transform 7", "protobuf transform 3"} {
			for _, content := range []store.Content{{}, {Drop: []string{"data"}}} {
				s := newStore(t, store.Options{Resource: resource, Content: content, Scope: scope})
				list(t, s.Sink(""), 5, thing{name: "a", uid: "u", version: 5})
				if err := s.Save(dir, "another cluster"); err != nil {
					t.Fatal(err)
				}
			}
		}
		var calls atomic.Int64
		content := store.Content{Drop: []string{"data"}, Keep: func(string, string, map[string]string) bool {
			calls.Add(1)
			return true
		}}
		options := store.CacheOptions{Contents: map[schema.GroupKind]store.Content{{Kind: "ConfigMap"}: content}}
		request := store.Request{Kind: configMapKind}
		if own {
			options.Contents, request.Content = nil, content
		}
		server := httptest.NewServer(&cluster{open: map[string]int{}, changed: make(chan struct{})})
		defer server.Close()
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(configMapKind, meta.RESTScopeNamespace)
		options.Config, options.Scheme, options.Mapper = &rest.Config{Host: server.URL}, scheme.Scheme, mapper
		options.Dir, options.Source = dir, []source.Option{source.NoWatchList()}
		c, err := store.NewCache(options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		h := open(t, c, request)
		<-h.Synced()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if calls.Load() == 0 {
			t.Errorf("%s: Keep is not used", what)
		}
		if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) > 0 {
			t.Errorf("%s: files %v, %v", what, files, err)
		}
	}
}

// TestKeepOfTwo: the stores of a kind share its Keep. A request with a Keep has its own store. Two contents that drop
// fields with different exceptions cannot be combined.
func TestKeepOfTwo(t *testing.T) {
	t.Parallel()
	c := idle(t, map[schema.GroupKind]store.Content{{Kind: "Secret"}: withoutData})
	first := open(t, c, store.Request{Kind: secretKind})
	if second := open(t, c, store.Request{Kind: secretKind}); second.Store != first.Store {
		t.Error("two requests without a content do not share a store")
	}
	if o := first.Options().Content; o.Keep == nil {
		t.Error("the content of the kind has no effect")
	}
	metadata := open(t, c, store.Request{Kind: secretKind, Content: store.Content{Metadata: true}})
	if metadata.Store != first.Store {
		t.Error("a request for the metadata does not share the store")
	}
	const want = "the cache and the request both drop fields, so neither can except objects with Keep"
	if _, err := c.Open(store.Request{Kind: secretKind, Content: store.Content{Drop: []string{"type"}}}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	pods := store.Request{Kind: podKind, Content: store.Content{Drop: []string{"status"}, Keep: kubeconfigs}}
	if one, other := open(t, c, pods), open(t, c, pods); one.Store == other.Store {
		t.Error("two requests with a Keep share a store")
	}
	pods.Content.Metadata = true // the dropped field is not in it
	if one, other := open(t, c, pods), open(t, c, pods); one.Store != other.Store {
		t.Error("two requests for the same metadata do not share a store")
	}
}
