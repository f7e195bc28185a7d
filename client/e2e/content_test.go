package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// annotated returns a secret with an annotation that is as confidential as its data.
func (b *bench) annotated(name string) *corev1.Secret {
	s := &corev1.Secret{StringData: map[string]string{"password": hidden, "user": "root"}}
	s.Namespace, s.Name = b.namespace, name
	s.Labels = map[string]string{"app": "vault"}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: hidden, "note": "it stays"}
	return s
}

// hiddenInJSON is part of the base64 encoding of hidden, whatever precedes it.
const hiddenInJSON = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZ"

// Dropped fields arrive over the wire and are not stored. The test covers JSON and protobuf, a watch list, pages, the
// watch, and responses to own writes. Another store of the same secrets has all fields.
func TestDroppedFieldsOfSecrets(t *testing.T) {
	t.Parallel()
	drop := store.Content{Drop: []string{"data", "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]"}}
	for name, tc := range map[string]struct {
		json bool
		opts []source.Option
	}{
		"protobuf":           {false, nil},
		"protobuf, by pages": {false, []source.Option{source.NoWatchList(), source.PageSize(2)}},
		"JSON":               {true, nil},
		"JSON, by pages":     {true, []source.Option{source.NoWatchList(), source.PageSize(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for i := range 5 {
				s := b.annotated(fmt.Sprint("o", i))
				b.within("create", soon, func(ctx context.Context) error { return b.other.Create(ctx, s) })
			}
			cache, own, x, _ := b.tapped("", tc.opts...)
			h := b.open(cache, store.Request{Kind: secrets, Unstructured: tc.json, Content: drop})
			check := func(step string, n int) {
				t.Helper()
				b.within(step, soon, h.Barrier)
				if h.Len() != n {
					t.Fatalf("%s: %d objects", step, h.Len())
				}
				for r := range h.Snapshot().All() {
					raw := r.Raw()
					for _, text := range []string{hidden, hiddenInJSON, "kubectl", "password", "managedFields"} {
						if bytes.Contains(raw, []byte(text)) {
							t.Errorf("%s: %s is stored as %q", step, r.Key(), raw)
						}
					}
					s, err := store.As[corev1.Secret](r)
					if err != nil || s.Annotations["note"] != "it stays" || s.Type != "Opaque" || len(r.Dropped()) != 2 {
						t.Errorf("%s: got %v, %v; %q were dropped", step, s, err, r.Dropped())
					}
				}
			}
			check("list", 5)
			if _, _, found := x.came(hidden); !found {
				t.Error("no dropped field arrived over the wire")
			}

			// Writes of another client, and own writes.
			foreign := b.annotated("foreign")
			b.within("foreign write", soon, func(ctx context.Context) error { return b.other.Create(ctx, foreign) })
			mine := b.annotated("mine")
			b.within("own create", soon, func(ctx context.Context) error { return own.Create(ctx, mine) })
			check("writes", 7)

			whole := b.open(cache, store.Request{Kind: secrets})
			if whole.Store == h.Store {
				t.Fatal("whole objects come from a store that drops fields")
			}
			var got corev1.Secret
			b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, client.KeyOf(mine), &got) })
			if string(got.Data["password"]) != hidden {
				t.Errorf("got %v although there is a store of whole objects", got.Data)
			}
			got.Labels["from"] = "whole"
			b.within("update of a whole object", soon, func(ctx context.Context) error { return own.Update(ctx, &got) })
			for _, st := range []*store.Handle{h, whole} {
				if r, ok := st.Get(client.KeyOf(mine)); !ok || r.Version() != got.ResourceVersion {
					t.Errorf("%+v: the own write is not seen", st.Options().Content)
				}
			}
			check("a write of the whole", 7)
		})
	}
}

// An object without the fields that the cache drops cannot be sent as a whole. Sending a difference removes none of
// them.
func TestUpdateWithDroppedFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.within("create", soon, func(ctx context.Context) error { return b.other.Create(ctx, b.annotated("a")) })
	cache, own, _, _ := b.tapped("")
	b.open(cache, store.Request{Kind: secrets, Content: store.Content{Drop: []string{"data"}}})
	key := client.Key{Namespace: b.namespace, Name: "a"}
	read := func() *corev1.Secret {
		t.Helper()
		s := &corev1.Secret{}
		b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, key, s) })
		if len(s.Data) > 0 {
			t.Fatalf("the cache shows %v", s.Data)
		}
		return s
	}
	server := func() *corev1.Secret {
		t.Helper()
		s := &corev1.Secret{}
		b.within("get live", soon, func(ctx context.Context) error { return own.Live().Get(ctx, key, s) })
		return s
	}
	refused := func(what string, err error) {
		t.Helper()
		dropped, is := errors.AsType[*client.DroppedError](err)
		if !is || !errors.Is(err, client.ErrPruned) || !slices.Equal(dropped.Paths, []string{"data"}) {
			t.Errorf("%s: error %v", what, err)
		}
		if !strings.Contains(fmt.Sprint(err), "the cache does not keep data;") {
			t.Errorf("%s: the error does not name the field: %v", what, err)
		}
		if s := server(); string(s.Data["password"]) != hidden {
			t.Fatalf("%s: the server has %v", what, s.Data)
		}
	}
	s := read()
	s.Labels["by"] = "update"
	refused("update", own.Update(b.ctx, s))
	s.ResourceVersion = ""
	refused("update without a version", own.Update(b.ctx, s))
	s = read()
	s.Data = map[string][]byte{"more": []byte("x")}
	refused("update that adds to what is not seen", own.Update(b.ctx, s))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(secrets)
	b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, key, u) })
	u.SetLabels(map[string]string{"by": "update"})
	refused("update of an unstructured object", own.Update(b.ctx, u))
	refused("replace", own.Replace(b.ctx, read()))
	if err := own.Apply(b.ctx, read()); !errors.Is(err, client.ErrWasRead) {
		t.Errorf("apply: error %v", err)
	}
	same := read()
	if err := own.Update(b.ctx, same); err != nil { // without a change no request is sent
		t.Errorf("update of an equal object: %v", err)
	}

	// A difference does not affect the dropped fields.
	s = read()
	b.within("modify", soon, func(ctx context.Context) error {
		return client.Modify(ctx, own, s, func(s *corev1.Secret) error {
			s.Labels["by"], s.Data = "modify", map[string][]byte{"more": []byte("x")}
			return nil
		})
	})
	if s := server(); string(s.Data["password"]) != hidden || string(s.Data["more"]) != "x" || s.Labels["by"] != "modify" {
		t.Errorf("after a Modify the server has %v, %v", s.Data, s.Labels)
	}
	s = read()
	before := s.DeepCopy()
	s.Labels["by"] = "patch"
	b.within("patch", soon, func(ctx context.Context) error { return own.Patch(ctx, s, client.MergeFrom(before)) })
	// A patch of a dropped field is sent, since the cache cannot tell that it changes nothing.
	b.within("patch of a dropped field", soon, func(ctx context.Context) error {
		return own.Patch(ctx, read(), client.RawPatch(types.MergePatchType, []byte(`{"data":{"more":null}}`)))
	})
	if s := server(); string(s.Data["password"]) != hidden || s.Data["more"] != nil || s.Labels["by"] != "patch" {
		t.Errorf("after two patches the server has %v, %v", s.Data, s.Labels)
	}

	// An object read from the server has all fields, and a new object replaces the stored one.
	s = server()
	s.Labels["by"], s.Data["password"] = "live", []byte("another")
	b.within("update of what was read live", soon, func(ctx context.Context) error { return own.Update(ctx, s) })
	s = server()
	if string(s.Data["password"]) != "another" || string(s.Data["user"]) != "root" || s.Labels["by"] != "live" {
		t.Errorf("after an Update of all fields the server has %v, %v", s.Data, s.Labels)
	}
	fresh := b.annotated("a")
	b.within("update of what is new", soon, func(ctx context.Context) error { return own.Update(ctx, fresh) })
	if s := server(); string(s.Data["password"]) != hidden {
		t.Errorf("after an Update with a new object the server has %v", s.Data)
	}
}

// With that option, managedFields are kept as the server has them: in lists, watches and own writes, in JSON and
// protobuf.
func TestManagedFieldsAreKept(t *testing.T) {
	t.Parallel()
	for name, json := range map[string]bool{"protobuf": false, "JSON": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			listed := b.annotated("listed")
			b.within("create", soon, func(ctx context.Context) error { return b.other.Create(ctx, listed) })
			cache, own, _, _ := b.tapped("")
			h := b.open(cache, store.Request{Kind: secrets, Unstructured: json, Content: store.Content{ManagedFields: true}})
			watched, mine := b.annotated("watched"), b.annotated("mine")
			b.within("foreign create", soon, func(ctx context.Context) error { return b.other.Create(ctx, watched) })
			b.within("own create", soon, func(ctx context.Context) error { return own.Create(ctx, mine) })
			same := func(step string, want *corev1.Secret) {
				t.Helper()
				got, err := store.Of[corev1.Secret](h.Store).Get(client.KeyOf(want))
				if err != nil || len(want.ManagedFields) == 0 || fmt.Sprint(got.ManagedFields) != fmt.Sprint(want.ManagedFields) {
					t.Errorf("%s: got %v, %v, want %v", step, got, err, want.ManagedFields)
				}
			}
			same("laid over", mine)
			b.within("barrier", soon, h.Barrier)
			for _, s := range []*corev1.Secret{listed, watched, mine} {
				same("watched", s)
			}
			// A change of the owner of a field alone is an event.
			events := h.Subscribe(store.SubscribeOptions{From: store.FromNow})
			defer events.Close()
			taken := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"labels":{"app":"vault"}}}`)
			b.within("apply", soon, func(ctx context.Context) error {
				return b.other.Patch(ctx, listed, client.RawPatch(types.ApplyPatchType, taken), client.Owner("helm"))
			})
			b.within("barrier", soon, h.Barrier)
			var got []store.Event
			for more := events.Take(10); len(more) > 0; more = events.Take(10) {
				got = append(got, more...)
			}
			got = slices.DeleteFunc(got, func(e store.Event) bool { return e.Type == store.Synced })
			if len(got) != 1 || got[0].Type != store.Modified || got[0].Key != client.KeyOf(listed) {
				t.Errorf("events of a change of managedFields: %v", got)
			}
			same("taken over", listed)
			// An update of an object with managedFields behaves as elsewhere.
			s := &corev1.Secret{}
			b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, client.KeyOf(mine), s) })
			s.Labels["by"] = "update"
			b.within("update", soon, func(ctx context.Context) error { return own.Update(ctx, s) })
			same("updated", s)
			if err := own.Apply(b.ctx, s); !errors.Is(err, client.ErrWasRead) {
				t.Errorf("apply: error %v", err)
			}
		})
	}
}
