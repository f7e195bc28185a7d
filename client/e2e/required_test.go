package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

// Meter is a custom resource whose schema requires fields that may be zero.
type Meter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MeterSpec   `json:"spec"`
	Status            MeterStatus `json:"status"`
}

type MeterSpec struct {
	Paused bool  `json:"paused"` // not required
	Size   int   `json:"size,omitempty"`
	Limit  Limit `json:"limit"` // not required
}

type Limit struct {
	CPU    int `json:"cpu"`
	Memory int `json:"memory"`
}

type MeterStatus struct {
	Ready    int       `json:"ready"`
	Phase    string    `json:"phase"`
	Queue    Queue     `json:"queue"`
	Note     string    `json:"note,omitempty"`
	Secret   string    `json:"secret"` // not required
	Readings []Reading `json:"readings,omitempty"`
}

type Queue struct {
	Depth  int `json:"depth"`
	Oldest int `json:"oldest,omitempty"`
}

type Reading struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
	Good  bool   `json:"good"`
}

func (m *Meter) DeepCopyObject() runtime.Object {
	out := *m
	out.ObjectMeta = *m.ObjectMeta.DeepCopy()
	out.Status.Readings = slices.Clone(m.Status.Readings)
	return &out
}

var meters = schema.GroupVersionKind{Group: "test.fairlead.io", Version: "v1", Kind: "Meter"}

// meterDefinition returns a definition whose version v1 requires fields that an older version lacks.
func meterDefinition() *apiextensionsv1.CustomResourceDefinition {
	crd := schemaless(meters)
	type schema = apiextensionsv1.JSONSchemaProps
	object := func(required []string, properties map[string]schema) schema {
		keep := true
		return schema{Type: "object", Required: required, Properties: properties, XPreserveUnknownFields: &keep}
	}
	integer, text := schema{Type: "integer"}, schema{Type: "string"}
	reading := object([]string{"name", "value", "good"}, map[string]schema{
		"name": text, "value": integer, "good": {Type: "boolean"},
	})
	all := object(nil, map[string]schema{
		"spec": object(nil, map[string]schema{
			"limit": object([]string{"cpu", "memory"}, map[string]schema{
				"cpu": integer, "memory": integer,
			}),
		}),
		"status": object([]string{"ready", "phase", "queue"}, map[string]schema{
			"ready": integer, "phase": text,
			"queue": object([]string{"depth"}, map[string]schema{"depth": integer}),
			"readings": {
				Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &reading},
			},
		}),
	})
	v := &crd.Spec.Versions[0]
	v.Subresources = &apiextensionsv1.CustomResourceSubresources{
		Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
	}
	crd.Spec.Versions = append(crd.Spec.Versions, *v)
	v = &crd.Spec.Versions[0]
	v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &all}
	crd.Spec.Versions[1].Name, crd.Spec.Versions[1].Storage = "v1alpha1", false
	return crd
}

// A Go type encodes zero fields that the server's object may lack. Modify sends such fields where the schema requires
// them, and removes none that the caller does not see. It asks the server only if the cache cannot tell.
func TestModifyWithRequiredFields(t *testing.T) {
	t.Parallel()
	env.InstallCRDs(t, clustertest.CRDObjects(meterDefinition()))
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(meters, &Meter{})
	for _, tc := range []struct {
		reason string
		watch  bool
		drop   []string
		opts   []client.WriteOption
		first  int  // requests of a first write
		unsure int  // requests of a write that adds to an object with other content, if it is unclear what the server has
		knows  bool // the client knows of each field whether the server has it
	}{
		{"watched", true, nil, nil, 1, 1, true},
		{"watched, and something else is dropped", true, []string{"metadata.annotations[a]"}, nil, 1, 1, true},
		{"watched, and a part is dropped", true, []string{"status.secret"}, nil, 1, 2, false},
		{"not watched", false, nil, nil, 2, 2, false},
		{"read from the server", true, nil, []client.WriteOption{writeoption.FromLive()}, 2, 2, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			cfg, x := rest.CopyConfig(env.Config(t)), &tap{types: map[string]bool{}}
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { x.next = next; return x })
			o := client.Options{Config: cfg, Mapper: b.own.Mapper(), Scheme: scheme}
			if tc.watch {
				o.Cache, _, _ = b.running(cache.CacheOptions{Config: env.Config(t), Mapper: o.Mapper, Scheme: scheme})
				b.open(o.Cache, store.Request{
					Kind: meters, Content: cache.Content{Drop: tc.drop},
					Options: []cache.Option{cache.Namespaces(b.namespace)},
				})
			}
			own, err := client.New(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(own.Close)
			// raw is an object in the old version, which requires no fields.
			raw := func(name, rest string) *unstructured.Unstructured {
				t.Helper()
				u := &unstructured.Unstructured{}
				if err := json.Unmarshal([]byte(rest), &u.Object); err != nil {
					t.Fatal(err)
				}
				u.SetGroupVersionKind(meters.GroupKind().WithVersion("v1alpha1"))
				u.SetNamespace(b.namespace)
				u.SetName(name)
				u.SetAnnotations(map[string]string{"a": "b"})
				return u
			}
			// read returns the server's object once the cache shows it.
			read := func(name string) *Meter {
				t.Helper()
				m := &Meter{}
				b.within("read", soon, func(ctx context.Context) error {
					key := client.Key{Namespace: b.namespace, Name: name}
					if err := own.Live().Get(ctx, key, m); err != nil || !tc.watch {
						return err
					}
					if err := own.WaitForCache(ctx, m); err != nil {
						return err
					}
					return own.Get(ctx, key, m)
				})
				return m
			}
			made := func(name, content string) *Meter {
				t.Helper()
				u := raw(name, content)
				b.within("create", soon, func(ctx context.Context) error { return b.other.Create(ctx, u) })
				if content := raw(name, content); content.Object["status"] != nil {
					content.SetResourceVersion(u.GetResourceVersion())
					b.within("status", soon, func(ctx context.Context) error { return b.other.Status().Update(ctx, content) })
				}
				return read(name)
			}
			server := func(name, part, want string) {
				t.Helper()
				u := raw(name, "{}")
				b.within("read", soon, func(ctx context.Context) error {
					return b.other.Live().Get(ctx, client.KeyOf(u), u)
				})
				var wanted any
				if err := json.Unmarshal([]byte(want), &wanted); err != nil {
					t.Fatal(err)
				}
				got, err := json.Marshal(u.Object[part])
				if err != nil {
					t.Fatal(err)
				}
				var have any
				if err := json.Unmarshal(got, &have); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(wanted, have); d != "" {
					t.Errorf("the %s of %s, -want +got:\n%s", part, name, d)
				}
			}
			status := func(m *Meter, requests int, fn func(*MeterStatus)) {
				t.Helper()
				before := x.asked()
				b.within("status of "+m.Name, soon, func(ctx context.Context) error {
					return client.ModifyStatus(ctx, own, m, func(m *Meter) error { fn(&m.Status); return nil }, tc.opts...)
				})
				if n := x.asked() - before; n != requests {
					t.Errorf("%d requests, want %d", n, requests)
				}
			}
			later := 1
			if len(tc.opts) > 0 {
				later = 2 // each later write reads the server's object
			}

			m := made("new", `{"spec":{"size":1}}`)
			status(m, tc.first, func(s *MeterStatus) { s.Phase = "new" })
			server("new", "status", `{"ready":0,"phase":"new","queue":{"depth":0},"secret":""}`)
			server("new", "spec", `{"size":1}`)
			b.within("another's field", soon, func(ctx context.Context) error {
				u := raw("new", "{}")
				return b.other.Status().Patch(ctx, u, client.RawPatch("application/merge-patch+json",
					[]byte(`{"status":{"another":{"n":1},"secret":"s"}}`)))
			})
			m = read("new")
			status(m, later, func(s *MeterStatus) { s.Readings = append(s.Readings, Reading{Name: "r"}) })
			server("new", "status", `{"ready":0,"phase":"new","queue":{"depth":0},"secret":"s","another":{"n":1},
				"readings":[{"name":"r","value":0,"good":false}]}`)
			status(m, tc.unsure, func(s *MeterStatus) { s.Ready, s.Queue.Oldest, s.Note = 1, 1, "n" })
			status(m, later, func(s *MeterStatus) { s.Ready, s.Queue.Oldest, s.Note = 0, 0, "" })
			server("new", "status", `{"ready":0,"phase":"new","queue":{"depth":0},"secret":"s","another":{"n":1},
				"readings":[{"name":"r","value":0,"good":false}]}`)
			nothing := later - 1
			if !tc.watch {
				nothing = 1 // only the server knows that there is nothing to change
			}
			status(m, nothing, func(s *MeterStatus) { s.Ready = 0 })

			m = made("untouched", `{"spec":{"size":1}}`)
			status(m, nothing, func(s *MeterStatus) { s.Ready = 0 })
			server("untouched", "status", `null`)

			if tc.knows {
				m = made("old", `{"spec":{},"status":{"phase":"old","secret":"s","another":"field"}}`)
				status(m, later+1, func(s *MeterStatus) { s.Phase = "upgraded" }) // refused at first
				server("old", "status",
					`{"ready":0,"phase":"upgraded","queue":{"depth":0},"secret":"s","another":"field"}`)
			}
			m = made("hidden", `{"spec":{},"status":{"secret":"s"}}`)
			if tc.drop != nil && !tc.knows && m.Status.Secret != "" {
				t.Fatal("a dropped field is shown")
			}
			if tc.watch { // the object of another reader may be incomplete
				status(m, tc.unsure+1, func(s *MeterStatus) { s.Phase = "p" }) // refused at first
				server("hidden", "status", `{"ready":0,"phase":"p","queue":{"depth":0},"secret":"s"}`)
			}

			// Another client's part of the object gets required fields only where it is empty.
			m = made("spec", `{"spec":{"size":1},"status":{"phase":"p","ready":1,"queue":{"depth":0}}}`)
			b.within("spec", soon, func(ctx context.Context) error {
				return client.Modify(ctx, own, m, func(m *Meter) error { m.Spec.Limit.CPU = 2; return nil }, tc.opts...)
			})
			server("spec", "spec", `{"size":1,"limit":{"cpu":2,"memory":0}}`)
			b.within("spec", soon, func(ctx context.Context) error {
				return client.Modify(ctx, own, m, func(m *Meter) error {
					m.Spec.Limit.CPU, m.Spec.Size, m.Labels = 0, 0, map[string]string{"l": ""}
					return nil
				}, tc.opts...)
			})
			server("spec", "spec", `{"limit":{"cpu":0,"memory":0}}`)
		})
	}
}
