package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

const password = "hunter2"

var metadataOnly = store.Options{
	Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: configMapKind,
	Content: store.Content{Metadata: true},
}

// locker returns an object with content that a store of metadata must not hold.
func locker(name string, version int) thing {
	x := obj(name, "u-"+name, version)
	x.more = `,"data":{"password":"` + password + `"}`
	x.meta = `,"managedFields":[{"manager":"x"}]`
	return x
}

// protoObject returns a thing in protobuf.
func protoObject(t *testing.T, x thing) *source.Object {
	t.Helper()
	var cm corev1.ConfigMap
	if err := json.Unmarshal(x.json(), &cm); err != nil {
		t.Fatal(err)
	}
	raw, err := cm.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o := &source.Object{Raw: raw, Encoding: source.Protobuf}
	if err := source.Scan(source.Protobuf, raw, &o.Header); err != nil {
		t.Fatal(err)
	}
	return o
}

// holdsNothingElse checks that the bytes of a store hold metadata alone.
func holdsNothingElse(t *testing.T, s *store.Store) {
	t.Helper()
	for r := range s.Snapshot().All() {
		if bytes.Contains(r.Raw(), []byte(password)) {
			t.Errorf("%s is held as %q", r.Key(), r.Raw())
		}
	}
	for _, q := range s.Quarantined() {
		if bytes.Contains(q.Raw, []byte(password)) {
			t.Errorf("%s is quarantined as %q", q.Key(), q.Raw)
		}
	}
}

// A store of metadata holds metadata alone, whoever fills it and in whatever encoding.
func TestMetadataStore(t *testing.T) {
	t.Parallel()
	s := newStore(t, metadataOnly)
	sink := s.Sink("")
	all := sink.Replace()
	for _, o := range []*source.Object{locker("a", 1).object(), protoObject(t, locker("b", 2))} {
		if err := all.Put(o); err != nil {
			t.Fatal(err)
		}
	}
	all.Commit(source.Commit{Version: "5"})
	apply(t, sink, source.Modified, locker("a", 6))
	if err := sink.Apply(source.Added, protoObject(t, locker("c", 7))); err != nil {
		t.Fatal(err)
	}
	put(t, s, locker("d", 8))
	raw := protoObject(t, locker("e", 9)).Raw
	before := bytes.Clone(raw)
	if _, err := s.Put(source.Protobuf, raw); err != nil || !bytes.Equal(raw, before) {
		t.Errorf("the bytes of an answer were changed: %v", err)
	}
	sink.Quarantine(source.Quarantined{Namespace: "ns", Name: "q", Raw: locker("q", 9).json()})
	sink.Quarantine(source.Quarantined{
		Namespace: "ns", Name: "r",
		Raw: []byte(`{"metadata":{"name":"r"},"data":"` + password),
	})
	holdsNothingElse(t, s)
	if got := read(s); !cmp.Equal(got, []string{"ns/a@6", "ns/b@2", "ns/c@7", "ns/d@8", "ns/e@9"}) {
		t.Errorf("read %v", got)
	}
	for k, m := range store.Metadata(s).All() {
		if m.GroupVersionKind() != configMapKind || m.Name != k.Name || m.ResourceVersion == "" {
			t.Errorf("%s is %+v", k, m)
		}
		r, _ := s.Get(k)
		var own metav1.PartialObjectMetadata
		if err := r.DecodeInto(&own); err != nil || !cmp.Equal(own.ObjectMeta, m.ObjectMeta) {
			t.Errorf("%s is decoded into %+v, %v", k, own, err)
		}
		text, err := r.AppendJSON(nil)
		if err != nil || strings.Contains(string(text), password) || !strings.Contains(string(text), `"name":"`+k.Name) {
			t.Errorf("%s as JSON is %q, %v", k, text, err)
		}
		for _, into := range []any{&corev1.ConfigMap{}, &unstructured.Unstructured{}, &map[string]any{}} {
			var decoding *store.DecodeError
			if err := r.DecodeInto(into); !errors.Is(err, store.ErrMetadataOnly) || !errors.As(err, &decoding) ||
				decoding.Key != k {
				t.Errorf("%s into %T: %v", k, into, err)
			}
		}
		if _, err := store.As[corev1.ConfigMap](r); !errors.Is(err, store.ErrMetadataOnly) {
			t.Errorf("%s as a ConfigMap: %v", k, err)
		}
	}

	// A list of the known objects in the other encoding changes nothing.
	c := s.Subscribe(store.SubscribeOptions{From: store.FromNow})
	defer c.Close()
	again := sink.Replace()
	for _, x := range []thing{locker("a", 6), locker("d", 8)} {
		if err := again.Put(x.object()); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []thing{locker("b", 2), locker("c", 7), locker("e", 9)} {
		if err := again.Put(protoObject(t, x)); err != nil {
			t.Fatal(err)
		}
	}
	again.Commit(source.Commit{Version: "12"})
	if got := summary(drain(c)); !cmp.Equal(got, []string{"SYNCED", "ADDED ns/d@8", "ADDED ns/e@9"}) {
		t.Errorf("events %v, want those that had been own writes", got)
	}
	apply(t, sink, source.Deleted, locker("a", 20))
	for _, e := range drain(c) {
		if bytes.Contains(e.Object.Raw(), []byte(password)) {
			t.Errorf("%s has %q", e.Type, e.Object.Raw())
		}
	}
}

// A store of metadata is saved in a file of its own, and a restart resumes from it.
func TestMetadataStoreIsSaved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole := metadataOnly
	whole.Content = store.Content{}
	for _, opt := range []store.Options{metadataOnly, whole} {
		s := newStore(t, opt)
		list(t, s.Sink(""), 9, locker("a", 5))
		if err := s.Save(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v: want one file for each", files, err)
	}
	for _, opt := range []store.Options{metadataOnly, whole} {
		s := newStore(t, opt)
		if err := s.Load(dir, "cluster"); err != nil {
			t.Fatal(err)
		}
		r, ok := s.Get(store.Key{Namespace: "ns", Name: "a"})
		if !ok || bytes.Contains(r.Raw(), []byte(password)) == opt.Content.Metadata {
			t.Errorf("%+v: loaded %q", opt.Content, r.Raw())
		}
	}
}

// An own write that cannot hide a foreign one is an echo. For other writes a store of metadata cannot tell, since the
// foreign change may be in the content.
func TestEchoesInAMetadataStore(t *testing.T) {
	t.Parallel()
	k := store.Key{Namespace: "ns", Name: "a"}
	label := func(version int, spec string) thing {
		x := status(version, spec, "old")
		x.labels = `"l":"x"`
		return x
	}
	for _, tc := range []struct {
		reason  string
		ctx     store.WriteContext
		foreign string // spec in the answer
		want    []string
	}{
		{"at the version that was read", store.WriteContext{Locked: true}, "x", nil},
		{
			"a patch, whose answer includes a foreign change of the spec",
			store.WriteContext{Sent: []byte(`{"metadata":{"labels":{"l":"x"}}}`)},
			"y",
			[]string{"MODIFIED ns/a@10<5"},
		},
		{
			"of the status",
			store.WriteContext{Subresource: "status", Sent: []byte(`{"status":{"state":"old"}}`)},
			"y",
			[]string{"MODIFIED ns/a@10<5"},
		},
	} {
		s := newStore(t, metadataOnly)
		sink := s.Sink("")
		list(t, sink, 9, status(5, "x", "old"))
		c := s.Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "ctl"})
		drain(c)
		ctx := tc.ctx
		ctx.Owner, ctx.Primary = "ctl", k
		ctx.Base, _ = s.Get(k)
		w := s.BeginWrite(k, ctx)
		if _, err := w.Done(source.JSON, label(10, tc.foreign).json()); err != nil {
			t.Fatal(err)
		}
		apply(t, sink, source.Modified, label(10, tc.foreign))
		if got := summary(drain(c)); !cmp.Equal(got, tc.want) {
			t.Errorf("%s: events %v, want %v", tc.reason, got, tc.want)
		}
		c.Close()
	}
}

// A request for metadata shares the store of whole objects that existed before or was announced.
func TestCacheSharesMetadata(t *testing.T) {
	t.Parallel()
	metadata := store.Request{Kind: configMapKind, Content: store.Content{Metadata: true}}
	open := func(cache *store.Cache, req store.Request) *store.Handle {
		t.Helper()
		h, err := cache.Open(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Release)
		return h
	}
	for _, tc := range []struct {
		reason   string
		before   []store.Request
		expected []store.Request
		request  store.Request
		metadata bool // what the store holds
		shared   int  // the index of the shared request; -1: none
	}{
		{"no other request", nil, nil, metadata, true, -1},
		{"by an option of the source", nil, nil, store.Request{Kind: configMapKind, Options: []source.Option{
			func(c *source.Config) { c.Metadata = true },
		}}, true, -1},
		{"the same", []store.Request{metadata}, nil, metadata, true, 0},
		{"whole objects, in protobuf", []store.Request{{Kind: configMapKind}}, nil, metadata, false, 0},
		{
			"whole objects, in JSON",
			[]store.Request{metadata, {Kind: configMapKind, Unstructured: true}},
			nil, metadata, false,
			1,
		},
		{
			"whole objects with other selectors",
			[]store.Request{{Kind: configMapKind, Options: []source.Option{source.Labels("a=b")}}},
			nil, metadata, true, -1,
		},
		{
			"whole objects of one namespace",
			[]store.Request{
				{Kind: configMapKind, Options: []source.Option{source.Namespaces("ns")}},
			},
			nil, metadata, true, -1,
		},
		{
			"whole objects after metadata",
			[]store.Request{metadata},
			nil,
			store.Request{Kind: configMapKind},
			false, -1,
		},
		{"announced whole objects", nil, []store.Request{{Kind: configMapKind}, metadata}, metadata, false, -1},
		{
			"announced objects of others", nil,
			[]store.Request{
				metadata, {Kind: configMapKind, Options: []source.Option{source.Fields("a=b")}},
			},
			metadata, true, -1,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			cache, _ := idleCache(t, -1)
			for _, req := range tc.expected {
				cache.Expect(req)
			}
			var before []*store.Handle
			for _, req := range tc.before {
				before = append(before, open(cache, req))
			}
			h := open(cache, tc.request)
			if h.Options().Content.Metadata != tc.metadata {
				t.Errorf("holds %+v", h.Options().Content)
			}
			for i, other := range before {
				if shared := other.Store == h.Store; shared != (i == tc.shared) {
					t.Errorf("shared with %d: %v", i, shared)
				}
			}
			if len(tc.expected) > 0 && !tc.metadata {
				if whole := open(cache, tc.expected[0]); whole.Store != h.Store {
					t.Error("the announced request has another store")
				}
			}
		})
	}
}

// Stores of whole objects come before stores of metadata with as many objects.
func TestCacheFindsWholeObjectsFirst(t *testing.T) {
	t.Parallel()
	cache, _ := idleCache(t, -1)
	var handles []*store.Handle
	for _, req := range []store.Request{
		{Kind: configMapKind, Content: store.Content{Metadata: true}},
		{Kind: configMapKind, Options: []source.Option{source.Labels("a=b")}},
		{Kind: configMapKind, Options: []source.Option{source.Namespaces("ns")}},
	} {
		h, err := cache.Open(req)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Release()
		handles = append(handles, h)
	}
	got := cache.Lookup(handles[0].Options().Resource)
	if len(got) != 3 || got[0] != handles[2].Store || got[1] != handles[0].Store || got[2] != handles[1].Store {
		t.Error("not in the order of their content")
	}
}
