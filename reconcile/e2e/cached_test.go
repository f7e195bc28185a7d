package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	v1 "github.com/fairlead-io/fairlead/internal/testbed/things/v1"
	thingsac "github.com/fairlead-io/fairlead/internal/testbed/things/v1/applyconfiguration/things/v1"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// gadget is the Go type of an old program, which lacks some fields of the stored kind Gadget.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size    int               `json:"size,omitempty"`
		Enabled bool              `json:"enabled,omitempty"`
		Limit   resource.Quantity `json:"limit,omitzero"`
		Every   metav1.Duration   `json:"every,omitzero"`
		Since   metav1.Time       `json:"since,omitzero"`
	} `json:"spec,omitzero"`
	Status struct {
		Ready bool `json:"ready,omitempty"`
	} `json:"status,omitzero"`
}

func (g *gadget) DeepCopyObject() runtime.Object {
	out := *g
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

var gadgets = schema.GroupVersion{Group: "test.fairlead.io", Version: "v1"}

// cachedClient returns a client with a cache of one namespace, which has listed the given kinds.
func cachedClient(t *testing.T, namespace, owner string, kinds ...schema.GroupVersionKind) *client.Client {
	t.Helper()
	s, err := v1.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(gadgets.WithKind("Gadget"), &gadget{})
	cfg := env.Config(t)
	mapper, err := discover.NewMapper(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := store.NewCache(store.CacheOptions{Config: cfg, Scheme: s, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{Config: cfg, Scheme: s, Mapper: mapper, Cache: cache, FieldOwner: owner})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }()
	var handles []*store.Handle
	t.Cleanup(func() {
		for _, h := range handles {
			h.Release()
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.Close()
	})
	for _, kind := range kinds {
		h, err := cache.Acquire(kind, source.Namespaces(namespace))
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
		select {
		case <-h.Synced():
		case <-time.After(testlimit.Wait):
			t.Fatalf("%s is not listed", kind)
		}
	}
	return c
}

// owners returns the owners of a field of an object as "manager/operation", sorted.
func owners(obj metav1.Object, field string) []string {
	var all []string
	for _, entry := range obj.GetManagedFields() {
		if strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:`+field+`"`) {
			all = append(all, entry.Manager+"/"+string(entry.Operation))
		}
	}
	slices.Sort(all)
	return all
}

var configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// An update with a cached object, which lacks managedFields, keeps the managedFields on the server.
func TestUpdateOfACachedObject(t *testing.T) {
	ctx, namespace := t.Context(), env.Namespace(t)
	user, c := thingsClient(t, "user"), cachedClient(t, namespace, "operator", configMapKind,
		corev1.SchemeGroupVersion.WithKind("Service"))
	create := func(name string) client.Key {
		t.Helper()
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Data:       map[string]string{"theirs": "1"},
		}
		if err := user.Create(ctx, cm); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitForCache(ctx, cm); err != nil {
			t.Fatal(err)
		}
		return client.KeyOf(cm)
	}
	for i, tc := range []struct {
		reason string
		change func(cm *corev1.ConfigMap)
	}{
		{"at the version that was read", func(*corev1.ConfigMap) {}},
		{"at any version", func(cm *corev1.ConfigMap) { cm.ResourceVersion = "" }},
		{"at any version, of any incarnation", func(cm *corev1.ConfigMap) { cm.ResourceVersion, cm.UID = "", "" }},
	} {
		key := create(fmt.Sprint("web-", i))
		var own corev1.ConfigMap
		if err := c.Get(ctx, key, &own); err != nil || len(own.ManagedFields) != 0 {
			t.Fatalf("%s: the object is not from the cache: %v, %v", tc.reason, own.ManagedFields, err)
		}
		tc.change(&own)
		own.Data["ours"] = "2"
		if err := c.Update(ctx, &own); err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		back, err := client.Get[corev1.ConfigMap](ctx, c, key)
		if err != nil || back.ResourceVersion != own.ResourceVersion {
			t.Errorf("%s: the next read shows %v, %v", tc.reason, back, err)
		}
		var live corev1.ConfigMap
		if err := user.Get(ctx, key, &live); err != nil {
			t.Fatal(err)
		}
		if theirs, ours := owners(&live, "theirs"), owners(&live, "ours"); !slices.Equal(theirs, []string{"user/Update"}) ||
			!slices.Equal(ours, []string{"operator/Update"}) {
			t.Errorf("%s: owners are %v and %v", tc.reason, theirs, ours)
		}
	}

	// A change by another client since the read is not overwritten.
	key := create("late")
	var own corev1.ConfigMap
	if err := c.Get(ctx, key, &own); err != nil {
		t.Fatal(err)
	}
	if err := client.Modify(ctx, user, own.DeepCopy(),
		func(cm *corev1.ConfigMap) error { cm.Data["theirs"] = "3"; return nil }); err != nil {
		t.Fatal(err)
	}
	own.Data["ours"] = "2"
	if err := c.Update(ctx, &own); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}

	// The same for a kind in protobuf, with defaults of the server.
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := user.Create(ctx, service); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitForCache(ctx, service); err != nil {
		t.Fatal(err)
	}
	var cached corev1.Service
	if err := c.Get(ctx, client.KeyOf(service), &cached); err != nil {
		t.Fatal(err)
	}
	cached.Labels = map[string]string{"l": "x"}
	if err := c.Update(ctx, &cached); err != nil || len(cached.ManagedFields) != 2 {
		t.Errorf("got %v, %v", cached.ManagedFields, err)
	}
}

// An update replaces the whole object. It would drop fields that the Go type lacks, so it is refused if the cache shows
// such fields.
func TestUpdateOfFieldsThatTheTypeLacks(t *testing.T) {
	env.InstallCRDs(t, clustertest.CRDObjects(schemaless("Gadget")))
	ctx, namespace := t.Context(), env.Namespace(t)
	kind := gadgets.WithKind("Gadget")
	user, c := thingsClient(t, "user"), cachedClient(t, namespace, "operator", kind, configMapKind)
	resize := func(g *gadget) { g.Spec.Size++ }
	for name, tc := range map[string]struct {
		reason       string
		spec, status map[string]any
		writeStatus  bool
		live         bool
		lost         string // "": the update is allowed
	}{
		"all":   {reason: "the type has all fields", spec: map[string]any{"size": int64(1)}},
		"field": {reason: "a field", spec: map[string]any{"size": int64(1), "colour": "red"}, lost: "spec.colour"},
		"live": {
			reason: "a field, of an object read live", spec: map[string]any{"size": int64(1), "colour": "red"},
			live: true, lost: "spec.colour",
		},
		"empty":  {reason: "an empty list", spec: map[string]any{"list": []any{}}, lost: "spec.list"},
		"nested": {reason: "in a list", spec: map[string]any{"list": []any{map[string]any{"a": "b"}}}, lost: "spec.list"},
		"zero": {
			reason: "a zero that omitempty drops: the default would come back",
			spec:   map[string]any{"enabled": false}, lost: "spec.enabled",
		},
		"second": {
			reason: "the fraction of a second", spec: map[string]any{"since": "2026-01-01T00:00:00.5Z"},
			lost: "spec.since",
		},
		"written": {
			reason: "another form of the same value",
			spec:   map[string]any{"limit": "1000m", "every": "60s", "since": "2026-01-01T01:00:00+01:00"},
		},
		"status": {
			reason: "of the status, by an update of the status", spec: map[string]any{},
			status: map[string]any{"phase": "up"}, writeStatus: true, lost: "status.phase",
		},
		"instatus": {
			reason: "of the spec, by an update of the status", spec: map[string]any{"colour": "red"},
			status: map[string]any{"ready": false}, writeStatus: true, lost: "status.ready",
		},
		"apart": {
			reason: "of the spec, by an update of the status with a type that has all fields",
			spec:   map[string]any{"colour": "red"}, writeStatus: true,
		},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": tc.spec, "status": tc.status}}
		u.SetGroupVersionKind(kind)
		u.SetNamespace(namespace)
		u.SetName(name)
		if tc.status == nil {
			delete(u.Object, "status")
		}
		stored := u.DeepCopy()
		if err := user.Create(ctx, stored); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if tc.status != nil {
			stored.Object["status"] = tc.status
			if err := user.Status().Update(ctx, stored); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.WaitForCache(ctx, u); err != nil {
			t.Fatal(err)
		}
		var own gadget
		get := c.Get
		if tc.live {
			get = c.Live().Get
		}
		if err := get(ctx, client.Key{Namespace: namespace, Name: name}, &own); err != nil {
			t.Fatal(err)
		}
		var err error
		if tc.writeStatus {
			own.Status.Ready = true
			err = c.Status().Update(ctx, &own)
		} else {
			resize(&own)
			err = c.Update(ctx, &own)
		}
		switch {
		case tc.lost == "" && err != nil:
			t.Errorf("%s: %v", tc.reason, err)
		case tc.lost != "" && (!errors.Is(err, client.ErrPruned) || !strings.Contains(err.Error(), tc.lost)):
			t.Errorf("%s: got %v, want ErrPruned with %s", tc.reason, err, tc.lost)
		}
		after := &unstructured.Unstructured{}
		after.SetGroupVersionKind(kind)
		if err := user.Get(ctx, client.Key{Namespace: namespace, Name: name}, after); err != nil {
			t.Fatal(err)
		}
		if colour, want := tc.spec["colour"], after.Object["spec"]; colour != nil &&
			want.(map[string]any)["colour"] != colour {
			t.Errorf("%s: the colour was lost: %v", tc.reason, want)
		}
		if tc.lost != "" && after.GetResourceVersion() != stored.GetResourceVersion() {
			t.Errorf("%s: the object was written", tc.reason)
		}
	}

	// Unstructured objects keep all fields.
	field := &unstructured.Unstructured{}
	field.SetGroupVersionKind(kind)
	if err := c.Get(ctx, client.Key{Namespace: namespace, Name: "field"}, field); err != nil {
		t.Fatal(err)
	}
	field.SetLabels(map[string]string{"l": "x"})
	if err := c.Update(ctx, field); err != nil {
		t.Error(err)
	}
	if colour, _, _ := unstructured.NestedString(field.Object, "spec", "colour"); colour != "red" {
		t.Errorf("the colour is %q", colour)
	}

	// An update with metadata alone would empty the object.
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Data:       map[string]string{"a": "b"},
	}
	if err := user.Create(ctx, cm); err != nil {
		t.Fatal(err)
	}
	for _, live := range []bool{false, true} {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(configMapKind)
		get := c.Get
		if live {
			get = c.Live().Get
		} else if err := c.WaitForCache(ctx, cm); err != nil {
			t.Fatal(err)
		}
		if err := get(ctx, client.KeyOf(cm), metadata); err != nil {
			t.Fatal(err)
		}
		metadata.Labels = map[string]string{"l": "x"}
		if err := c.Update(ctx, metadata); !errors.Is(err, client.ErrPruned) {
			t.Errorf("got %v, want ErrPruned", err)
		}
	}
	if err := user.Get(ctx, client.KeyOf(cm), cm); err != nil || cm.Data["a"] != "b" {
		t.Errorf("the data is %v, %v", cm.Data, err)
	}
}

// The built-in Go types have all fields of this server's objects, also from protobuf, so an update is never refused.
func TestBuiltInTypesHaveAllFields(t *testing.T) {
	ctx := t.Context()
	kinds := []schema.GroupVersionKind{}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if slices.Contains([]string{
			"Namespace", "Service", "ClusterRole", "ClusterRoleBinding", "PriorityClass",
			"FlowSchema", "PriorityLevelConfiguration", "EndpointSlice", "ServiceCIDR",
		}, gvk.Kind) &&
			gvk.Version == "v1" {
			kinds = append(kinds, gvk)
		}
	}
	c := cachedClient(t, "", "operator", kinds...)
	seen := 0
	for _, gvk := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := c.List(ctx, list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			seen++
			typed, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			obj := typed.(client.Object)
			if err := c.Get(ctx, client.KeyOf(&list.Items[i]), obj); err != nil {
				t.Fatal(err)
			}
			obj.SetLabels(map[string]string{"fairlead.io/never": "written"})
			if err := c.Update(ctx, obj, client.DryRun()); errors.Is(err, client.ErrPruned) {
				t.Error(err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d objects were tried", seen)
	}
}

// An operator owns the fields that it applies and none that users set. This also holds for apply configurations
// generated by controller-gen.
func TestApplyOwnsOnlyAppliedFields(t *testing.T) {
	installThings(t)
	ctx, namespace := t.Context(), env.Namespace(t)
	user, c := thingsClient(t, "user"), cachedClient(t, namespace, "operator", v1.SchemeGroupVersion.WithKind("Thing"))
	theirs := thing(namespace, "web")
	theirs.Spec.Colour = "red"
	if err := user.Create(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitForCache(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	key := client.KeyOf(theirs)
	for _, what := range []client.Applicable{
		&v1.Thing{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: v1.ThingSpec{Size: 5}},
		thingsac.Thing("web", namespace).WithSpec(thingsac.ThingSpec().WithSize(5)),
	} {
		if err := c.Apply(ctx, what, client.Force()); err != nil {
			t.Fatal(err)
		}
		status := thingsac.Thing("web", namespace).WithStatus(
			thingsac.ThingStatus().WithFlow(flow.Position{
				Flow: "f", Step: "s", Token: "t", Begun: time.Now(), Started: time.Now(),
			}),
		)
		if err := c.Status().Apply(ctx, status, client.Force()); err != nil {
			t.Fatal(err)
		}
		shown, err := client.Get[v1.Thing](ctx, c, key)
		if err != nil || shown.Spec.Size != 5 || shown.Spec.Colour != "red" || shown.Status.Flow == nil {
			t.Fatalf("the next read shows %v, %v", shown, err)
		}
		for reason, reader := range map[string]client.Reader{"cached": c, "live": c.Live()} {
			var own v1.Thing
			if err := reader.Get(ctx, key, &own); err != nil {
				t.Fatal(err)
			}
			own.ManagedFields, own.ResourceVersion = nil, ""
			own.Spec.Size = 6
			if err := c.Apply(ctx, &own, client.Force()); !errors.Is(err, client.ErrWasRead) {
				t.Errorf("%s: got %v, want ErrWasRead", reason, err)
			}
		}
		var live v1.Thing
		if err := user.Get(ctx, key, &live); err != nil {
			t.Fatal(err)
		}
		if got := owners(&live, "colour"); !slices.Equal(got, []string{"user/Update"}) {
			t.Errorf("the colour is owned by %v", got)
		}
		if got := owners(&live, "size"); !slices.Contains(got, "operator/Apply") {
			t.Errorf("the size is owned by %v", got)
		}
	}
}
