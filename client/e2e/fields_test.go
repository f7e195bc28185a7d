package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// The client decides as the server whether a field selector selects an own write. The test covers each selectable field
// of built-in kinds and the declared fields of a custom kind. It covers JSON and protobuf, whole objects and metadata.
func TestFieldSelectorsAgreeWithTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	web, err := rest.HTTPClientFor(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, accept string) (raw []byte, code int) {
		t.Helper()
		req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, env.Config(t).Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		res, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if raw, err = io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		return raw, res.StatusCode
	}
	for _, account := range []string{"default", "robot"} {
		if err := b.other.Create(b.ctx, &corev1.ServiceAccount{ObjectMeta: b.meta(account)}); err != nil &&
			account != "default" {
			t.Fatal(err)
		}
	}
	for _, s := range b.selectables() {
		t.Run(s.kind.GroupKind().String(), func(t *testing.T) {
			decided := 0
			objects := map[string]map[source.Encoding][]byte{}
			for _, obj := range s.objects {
				if err := b.other.Create(b.ctx, obj); err != nil {
					t.Fatal(err)
				}
				if s.then != nil && s.then(obj.GetName(), obj) {
					if err := b.other.Status().Update(b.ctx, obj); err != nil {
						t.Fatal(err)
					}
				}
				at := s.path + "/" + obj.GetName()
				raw, _ := get(at, "application/json")
				objects[obj.GetName()] = map[source.Encoding][]byte{source.JSON: raw}
				if s.fields == nil {
					raw, _ = get(at, "application/vnd.kubernetes.protobuf")
					var wrapped runtime.Unknown
					if err := wrapped.Unmarshal(raw[4:]); err != nil {
						t.Fatal(err)
					}
					objects[obj.GetName()][source.Protobuf] = wrapped.Raw
				}
			}
			for _, label := range s.labels {
				selectors := []string{label + "=", label + "!="}
				for _, raw := range objects {
					values := possible(t, raw[source.JSON])
					for _, v := range values {
						selectors = append(selectors, label+"="+v)
					}
				}
				slices.Sort(selectors)
				for _, selector := range slices.Compact(selectors) {
					answer, code := get(s.path+"?fieldSelector="+url.QueryEscape(selector), "application/json")
					var list metav1.PartialObjectMetadataList
					if err := json.Unmarshal(answer, &list); err != nil || code != http.StatusOK {
						t.Fatalf("%s: the server answers %d: %s", selector, code, answer)
					}
					listed := map[string]bool{}
					for _, m := range list.Items {
						listed[m.Name] = true
					}
					for _, content := range []store.Content{{}, {Metadata: true}} {
						st := store.New(store.Options{
							Kind: s.kind, Scheme: scheme.Scheme, FieldSelector: selector, Fields: s.fields, Content: content,
						})
						r := st.Sink("").Replace()
						r.Commit(source.Commit{Version: "1"})
						if !st.Decides() {
							t.Errorf("%s: not decided", selector)
						}
						for name, forms := range objects {
							for enc, raw := range forms {
								want := store.OutOfScope
								if listed[name] {
									want = store.Overlaid
									decided++
								}
								got, err := st.Put(enc, raw)
								again := got == store.AlreadyKnown && seen(st, b, name) && listed[name]
								if err != nil || got != want && !again {
									t.Errorf("%s: %s in %v is %v, %v; the server lists %v", selector, name, enc, got, err, listed)
								}
							}
						}
						st.Close()
					}
				}
			}
			if decided < 2*len(s.labels) {
				t.Errorf("the objects do not distinguish the fields: %d were selected", decided)
			}
		})
	}
	// Selectors that the server refuses, or evaluates in its own way, are not decided.
	for _, s := range []struct{ kind, label, path string }{
		{"ReplicaSet.v1.apps", "status.replicas", "/apis/apps/v1/replicasets"},
		{"Namespace.v1.", "name", "/api/v1/namespaces"},
		{"Pod.v1.", "status.podIPs", ""},
		{"ConfigMap.v1.", "data.a", "/api/v1/configmaps"},
	} {
		kind, _ := schema.ParseKindArg(s.kind)
		st := store.New(store.Options{Kind: *kind, FieldSelector: s.label + "=1"})
		if st.Decides() {
			t.Errorf("%s of %s is decided", s.label, s.kind)
		}
		st.Close()
		if s.path == "" {
			continue
		}
		if answer, code := get(s.path+"?fieldSelector="+s.label+"%3D1", "application/json"); code != http.StatusBadRequest {
			t.Errorf("%s of %s: the server answers %d: %s", s.label, s.kind, code, answer)
		}
	}
}

// seen reports whether a store has an object of the bench or of the cluster.
func seen(st *store.Store, b *bench, name string) bool {
	for _, namespace := range []string{b.namespace, ""} {
		if _, ok := st.Get(store.Key{Namespace: namespace, Name: name}); ok {
			return true
		}
	}
	return false
}

// possible returns the values of an object that a selector can name.
func possible(t *testing.T, raw []byte) (values []string) {
	t.Helper()
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, member := range v {
				if name != "metadata" && name != "managedFields" {
					walk(member)
				}
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		case string:
			if len(v) < 40 && !strings.ContainsAny(v, ",=!\\") {
				values = append(values, v)
			}
		default:
			values = append(values, fmt.Sprint(v))
		}
	}
	var u map[string]any
	if err := json.Unmarshal(raw, &u); err != nil {
		t.Fatal(err)
	}
	walk(u)
	values = append(values, "true", "false", "0")
	slices.Sort(values)
	return slices.Compact(values)
}

// Own writes of selected custom resources are read at once. With declared fields this needs no request.
func TestOwnWritesWithFieldSelectors(t *testing.T) {
	t.Parallel()
	for name, declared := range map[string]bool{"declared": true, "not declared": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.painted("")
			cfg := rest.CopyConfig(env.Config(t))
			x := &tap{types: map[string]bool{}}
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { x.next = next; return x })
			o := store.CacheOptions{Config: cfg, Mapper: b.own.Mapper(), Scheme: scheme.Scheme}
			if declared {
				o.Fields = map[schema.GroupKind]map[string]store.FieldValue{s.kind.GroupKind(): s.fields}
			}
			cache, own, _ := b.running(o)
			h := b.open(cache, store.Request{
				Kind: s.kind, Unstructured: true,
				Options: []source.Option{source.Namespaces(b.namespace), source.Fields("spec.colour=red,spec.dry!=true")},
			})
			before := x.asked()
			u := s.objects[0].(*unstructured.Unstructured)
			write := func(in bool, colour string, dry bool) {
				t.Helper()
				u.Object["spec"] = map[string]any{"colour": colour, "dry": dry}
				b.within("write", soon, func(ctx context.Context) error {
					if u.GetUID() == "" {
						return own.Create(ctx, u)
					}
					return own.Update(ctx, u)
				})
				r, ok := h.Get(client.KeyOf(u))
				if ok != in || ok && r.Version() != u.GetResourceVersion() {
					t.Errorf("%s, dry %v: the store has it: %v", colour, dry, ok)
				}
				got := &unstructured.Unstructured{}
				got.SetGroupVersionKind(s.kind)
				b.within("get", soon, func(ctx context.Context) error { return own.Get(ctx, client.KeyOf(u), got) })
				if got.GetResourceVersion() != u.GetResourceVersion() {
					t.Errorf("%s, dry %v: version %s is read, written was %s", colour, dry, got.GetResourceVersion(),
						u.GetResourceVersion())
				}
			}
			write(true, "red", false)
			write(false, "red", true)
			write(true, "red", false)
			write(false, "blue", false)
			write(false, "green", false)
			write(true, "red", false)
			b.within("delete", soon, func(ctx context.Context) error { return own.Delete(ctx, u) })
			if _, ok := h.Get(client.KeyOf(u)); ok {
				t.Error("the store has the deleted object")
			}
			if n := x.asked() - before; declared && n != 0 {
				t.Errorf("%d requests to the server", n)
			}
			if h.Decides() != declared {
				t.Errorf("decides: %v", h.Decides())
			}
		})
	}
}
