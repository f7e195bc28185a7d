package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/shard"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// realKind is a kind of a real server that is watched in slots.
type realKind struct {
	name     string
	gvr      schema.GroupVersionResource
	kind     string
	by       shard.By
	encoding source.Encoding
	metadata bool
	// Watches of Events bypass the watch cache of the server and are not selected there. Their lists are.
	unselected bool
	few        bool // the server has no other namespaces yet
}

var realKinds = []realKind{
	{name: "config maps", gvr: configMaps, kind: "ConfigMap", encoding: source.Protobuf, few: true},
	{name: "config maps by uid", gvr: configMaps, kind: "ConfigMap", by: shard.UID},
	{name: "metadata", gvr: configMaps, kind: "ConfigMap", metadata: true},
	{
		name: "a custom resource", kind: "Shardling",
		gvr: schema.GroupVersionResource{Group: "slots.fairlead.io", Version: "v1", Resource: "shardlings"},
	},
	{name: "events", gvr: schema.GroupVersionResource{Version: "v1", Resource: "events"}, kind: "Event", unselected: true},
}

// TestSlotsOfARealServer holds slots on a real API server, with its feature gate for sharded watches on and off.
func TestSlotsOfARealServer(t *testing.T) {
	t.Parallel()
	for _, gate := range []bool{true, false} {
		t.Run(fmt.Sprintf("ShardedListAndWatch=%t", gate), func(t *testing.T) {
			t.Parallel()
			c := clustertest.Start(t, cluster.Options{FeatureGates: map[string]bool{"ShardedListAndWatch": gate}})
			keep := true
			clustertest.InstallCRDs(t, c.Config(), clustertest.CRDObjects(&apiextensionsv1.CustomResourceDefinition{
				ObjectMeta: metav1.ObjectMeta{Name: "shardlings.slots.fairlead.io"},
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Group: "slots.fairlead.io", Scope: apiextensionsv1.NamespaceScoped,
					Names: apiextensionsv1.CustomResourceDefinitionNames{
						Plural: "shardlings", Singular: "shardling", Kind: "Shardling", ListKind: "ShardlingList",
					},
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
						Name: "v1", Served: true, Storage: true,
						Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
							Type: "object", XPreserveUnknownFields: &keep,
						}},
					}},
				},
			}))
			for _, k := range realKinds {
				t.Run(k.name, func(t *testing.T) { newRealSlots(t, c.Config(), k, gate).play() })
			}
		})
	}
}

type realSlots struct {
	realKind
	t       *testing.T
	gate    bool
	client  dynamic.NamespaceableResourceInterface
	spaces  []string
	share   *source.Sharding
	watched *watchtest.Watched
	rec     *watchtest.Recorder
}

func newRealSlots(t *testing.T, config *rest.Config, k realKind, gate bool) *realSlots {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &realSlots{realKind: k, t: t, gate: gate, client: client.Resource(k.gvr)}
	layout := shard.Layout{By: k.by, Slots: 16}
	s.share = source.NewSharding(layout)
	for range 12 {
		s.spaces = append(s.spaces, clustertest.Namespace(t, config))
	}
	for i := range 48 {
		s.put(i, "1")
	}
	s.watched, err = watchtest.Start(source.Config{
		REST: config, Resource: k.gvr, Sharding: s.share, Encoding: k.encoding, Metadata: k.metadata, PageSize: 7,
	}, store.Options{Namespaced: true, Content: store.Content{Metadata: k.metadata}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.watched.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.rec = s.watched.Record("all")
	return s
}

// put creates or changes an object in one of the namespaces.
func (s *realSlots) put(i int, value string) {
	s.t.Helper()
	ns, name := s.spaces[i%len(s.spaces)], fmt.Sprint("o", i)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": s.gvr.GroupVersion().String(), "kind": s.kind,
		"metadata": map[string]any{"namespace": ns, "name": name, "labels": map[string]any{"v": value}},
	}}
	if s.kind == "Event" {
		u.Object["involvedObject"] = map[string]any{"namespace": ns, "kind": "Pod", "name": "p"}
	}
	_, err := s.client.Namespace(ns).Apply(s.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *realSlots) remove(i int) {
	s.t.Helper()
	ns := s.client.Namespace(s.spaces[i%len(s.spaces)])
	if err := ns.Delete(s.t.Context(), fmt.Sprint("o", i), metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// hold changes the slots and waits until they are listed.
func (s *realSlots) hold(slots ...int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testlimit.Wait)
	defer cancel()
	if err := s.share.Set(s.share.Layout().Set(slots...)); err != nil {
		s.t.Fatal(err)
	}
	select { // the source may not run yet
	case <-s.watched.Store.Synced():
	case <-ctx.Done():
		s.t.Fatal("it is not synced")
	}
	if err := s.share.Wait(ctx); err != nil {
		s.t.Fatal(err)
	}
	s.same(ctx)
}

// same waits until the store and the subscriber have what the server has in the slots.
func (s *realSlots) same(ctx context.Context) {
	s.t.Helper()
	if err := s.watched.Store.Barrier(ctx); err != nil {
		s.t.Fatal(err)
	}
	all, err := s.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	want := map[string]watchtest.State{}
	held := s.share.Held()
	for _, o := range all.Items {
		if held.Has(o.GetNamespace(), o.GetUID()) {
			want[o.GetNamespace()+"/"+o.GetName()] = watchtest.State{
				UID: string(o.GetUID()), Version: o.GetResourceVersion(),
			}
		}
	}
	if diff := cmp.Diff(want, s.watched.Cached()); diff != "" {
		s.t.Fatalf("the store (-want +got):\n%s", diff)
	}
	err = s.rec.Wait(ctx, func(r watchtest.Recording) bool {
		have, violations := r.Check()
		for _, v := range violations {
			s.t.Error(v)
		}
		return cmp.Equal(want, have)
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *realSlots) counters() source.Counters { return s.watched.Source.Status()[0].Counters }

func (s *realSlots) play() {
	ctx, cancel := context.WithTimeout(s.t.Context(), testlimit.Wait)
	defer cancel()
	s.hold(0, 1, 2, 3, 4, 5, 6, 7)
	listed := s.counters()
	s.hold(4, 5, 6, 7, 8, 9, 10, 11)
	gained := s.counters()
	for i := range 48 {
		s.put(i, "2")
	}
	for i := range 16 {
		s.remove(3 * i)
	}
	s.same(ctx)
	selected := s.gate && !s.unselected
	after := s.counters()
	for !selected && after.FilteredEvents == gained.FilteredEvents { // a source counts a batch after it has delivered it
		select {
		case <-time.After(10 * time.Millisecond):
			after = s.counters()
		case <-ctx.Done():
			s.t.Fatal("no event was filtered")
		}
	}
	s.t.Logf("events: %d from the wire, %d filtered; objects: %d, %d; bytes: %d, %d", after.WireEvents-gained.WireEvents,
		after.FilteredEvents-gained.FilteredEvents, after.WireObjects, after.FilteredObjects, after.WireBytes,
		after.FilteredBytes)
	if selected && after.FilteredEvents > gained.FilteredEvents {
		s.t.Errorf("%d events were filtered here", after.FilteredEvents-gained.FilteredEvents)
	}
	// a list always happens; without selection by the server it covers only their namespaces while these are few
	filtered := gained.FilteredObjects > listed.FilteredObjects
	if want := !s.gate && !s.few; filtered != want && (s.gate || s.few || s.by == shard.UID) {
		s.t.Errorf("%d objects of a list were filtered here", gained.FilteredObjects-listed.FilteredObjects)
	}
	s.hold()
	s.hold(s.all()...)
	for _, v := range s.watched.Requests.Check() {
		s.t.Error(v)
	}
}

func (s *realSlots) all() (slots []int) {
	for slot := range s.share.Layout().Len() {
		slots = append(slots, slot)
	}
	return slots
}
