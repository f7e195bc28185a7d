package client_test

import (
	"context"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/discover"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// dry is a client, with a cache of the ConfigMaps and Pods of one namespace or without a cache.
type dry struct {
	ctx       context.Context
	namespace string
	client    *client.Client
	cache     *store.Cache
	user      kubernetes.Interface // another client
}

func startDry(t *testing.T, watched bool) *dry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config()
	r := &dry{ctx: ctx, namespace: "a", user: kubernetes.NewForConfigOrDie(cfg)}
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait(); server.Close() })
	mapper, err := discover.NewMapper(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.cache, err = store.NewCache(store.CacheOptions{Config: cfg, Mapper: mapper}); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { _ = r.cache.Run(ctx) })
	for _, kind := range []string{"ConfigMap", "Pod"} {
		if !watched {
			break
		}
		h, err := r.cache.Acquire(corev1.SchemeGroupVersion.WithKind(kind), source.Namespaces(r.namespace))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Release)
		select {
		case <-h.Synced():
		case <-ctx.Done():
			t.Fatalf("%s is not synced: %+v", kind, h.Statuses())
		}
	}
	if r.client, err = client.New(client.Options{
		Config: cfg, Cache: r.cache, Mapper: mapper, FieldOwner: "dry",
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
	return r
}

func (r *dry) configMap(name string) *corev1.ConfigMap {
	cm := configMap(name, "k", "v")
	cm.Namespace = r.namespace
	return cm
}

// boundPod returns a pod that has a grace period, since its spec names a node.
func (r *dry) boundPod() *corev1.Pod {
	p := pod("web")
	p.Namespace, p.Spec.NodeName = r.namespace, "nowhere"
	return p
}

// arrived waits until the cache shows a version that the server has returned for a write of this kind.
func (r *dry) arrived(t *testing.T, gvr schema.GroupVersionResource, version string) {
	t.Helper()
	for _, st := range r.cache.Stores(gvr) {
		if err := st.WaitForNamespace(r.ctx, r.namespace, version); err != nil {
			t.Fatal(err)
		}
	}
}

// A dry run changes neither the object nor the cache, and the next change still sends an event. The test covers each
// kind of write with each option that affects it.
func TestDryRunsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	uid := func(cm *corev1.ConfigMap) *corev1.ConfigMap { return cm }
	bare := func(cm *corev1.ConfigMap) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	}
	outdated := func(cm *corev1.ConfigMap) *corev1.ConfigMap {
		cm = bare(cm)
		cm.UID = "00000000-0000-4000-8000-000000000000"
		return cm
	}
	del := func(of func(*corev1.ConfigMap) *corev1.ConfigMap, opts ...client.WriteOption) func(
		*dry, *corev1.ConfigMap,
	) error {
		return func(r *dry, cm *corev1.ConfigMap) error {
			return r.client.Delete(r.ctx, of(cm), append(opts, client.DryRun())...)
		}
	}
	patch := func(t types.PatchType, data string) func(*dry, *corev1.ConfigMap) error {
		return func(r *dry, cm *corev1.ConfigMap) error {
			return r.client.Patch(r.ctx, cm, client.RawPatch(t, []byte(data)), client.DryRun())
		}
	}
	for _, tc := range []struct {
		reason string
		write  func(*dry, *corev1.ConfigMap) error
	}{
		{"a delete by name", del(bare)},
		{"a delete by uid", del(uid)},
		{"a delete with an outdated uid, and so by name", del(outdated)},
		{"a delete of one incarnation", del(uid, client.SameUID())},
		{"a delete of one version", del(uid, client.SameVersion())},
		{"a delete with dependents first", del(uid, client.Propagation(metav1.DeletePropagationForeground))},
		{"a delete without dependents", del(bare, client.Propagation(metav1.DeletePropagationOrphan))},
		{"a delete at once", del(uid, client.Grace(0), client.IgnoreNotFound())},
		{"a delete of all", func(r *dry, cm *corev1.ConfigMap) error {
			return r.client.DeleteCollection(r.ctx, cm, client.Selection{Namespace: r.namespace}, client.DryRun(),
				client.Grace(0))
		}},
		{"an update", func(r *dry, cm *corev1.ConfigMap) error {
			cm.Data["k"] = "dry"
			return r.client.Update(r.ctx, cm, client.DryRun())
		}},
		{"an update of one version", func(r *dry, cm *corev1.ConfigMap) error {
			cm.Labels = map[string]string{"dry": "run"}
			return r.client.Update(r.ctx, cm, client.DryRun(), client.SameVersion())
		}},
		{"a merge patch", patch(types.MergePatchType, `{"data":{"k":"dry"}}`)},
		{"a strategic patch", patch(types.StrategicMergePatchType, `{"data":{"k":"dry"}}`)},
		{"a json patch", patch(types.JSONPatchType, `[{"op":"replace","path":"/data/k","value":"dry"}]`)},
		{"an apply", func(r *dry, _ *corev1.ConfigMap) error {
			want := r.configMap("web")
			want.Data["k"] = "dry"
			return r.client.Apply(r.ctx, want, client.DryRun(), client.Force())
		}},
		{"an apply of an absent object", func(r *dry, _ *corev1.ConfigMap) error {
			return r.client.Apply(r.ctx, r.configMap("other"), client.DryRun())
		}},
		{"a modification", func(r *dry, cm *corev1.ConfigMap) error {
			return client.Modify(r.ctx, r.client, cm, func(cm *corev1.ConfigMap) error { cm.Data["k"] = "dry"; return nil },
				client.DryRun())
		}},
		{"a create", func(r *dry, _ *corev1.ConfigMap) error {
			return r.client.Create(r.ctx, r.configMap("other"), client.DryRun())
		}},
		{"a create with a generated name", func(r *dry, _ *corev1.ConfigMap) error {
			cm := r.configMap("")
			cm.GenerateName = "other-"
			return r.client.Create(r.ctx, cm, client.DryRun())
		}},
	} {
		for name, watched := range map[string]bool{"watched": true, "not watched": false} {
			t.Run(tc.reason+", "+name, func(t *testing.T) {
				t.Parallel()
				r := startDry(t, watched)
				cm := r.configMap("web")
				if err := r.client.Create(r.ctx, cm); err != nil {
					t.Fatal(err)
				}
				r.arrived(t, configMaps, cm.ResourceVersion)
				before := cm.DeepCopy()
				if err := tc.write(r, cm); err != nil {
					t.Fatal(err)
				}
				r.unchanged(t, before)
			})
		}
	}
}

// unchanged checks that the ConfigMap is the only one, and that the server and readers have it unchanged. It also
// checks that the next change sends an event.
func (r *dry) unchanged(t *testing.T, before *corev1.ConfigMap) {
	t.Helper()
	live, err := r.user.CoreV1().ConfigMaps(r.namespace).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(live.Items) != 1 || live.Items[0].ResourceVersion != before.ResourceVersion {
		t.Fatalf("the server has %+v, want only version %s", live.Items, before.ResourceVersion)
	}
	got, err := client.Get[corev1.ConfigMap](r.ctx, r.client, client.KeyOf(before))
	if err != nil || got.ResourceVersion != before.ResourceVersion || got.Data["k"] != "v" {
		t.Errorf("a read returns %+v, %v", got, err)
	}
	for cm, err := range client.List[corev1.ConfigMap](r.ctx, r.client, client.InNamespace(r.namespace)) {
		if err != nil || cm.Name != "web" {
			t.Errorf("listed: %v, %v", cm, err)
		}
	}
	for _, st := range r.cache.Stores(configMaps) {
		if n := st.OverlayStats().Entries; n != 0 {
			t.Errorf("%d entries in the overlay", n)
		}
		cursor := st.Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "controller"})
		defer cursor.Close()
		foreign := live.Items[0].DeepCopy()
		foreign.Data["k"] = "foreign"
		foreign, err := r.user.CoreV1().ConfigMaps(r.namespace).Update(r.ctx, foreign, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r.arrived(t, configMaps, foreign.ResourceVersion)
		delivered := false
		for evs := cursor.Take(100); len(evs) > 0; evs = cursor.Take(100) {
			for _, e := range evs {
				delivered = delivered || e.Object != nil && e.Object.Version() == foreign.ResourceVersion
			}
		}
		if !delivered {
			t.Error("the next change sends no event")
		}
	}
}

// After a dry run, the object has the content of the response at the version of the live object. The client does not
// take that for the server's state.
func TestWriteAfterADryRun(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"watched": true, "not watched": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startDry(t, watched)
			cm := r.configMap("web")
			if err := r.client.Create(r.ctx, cm); err != nil {
				t.Fatal(err)
			}
			r.arrived(t, configMaps, cm.ResourceVersion)
			set := func(value string, opts ...client.WriteOption) {
				t.Helper()
				change := func(cm *corev1.ConfigMap) error { cm.Data["k"] = value; return nil }
				if err := client.Modify(r.ctx, r.client, cm, change, opts...); err != nil {
					t.Fatal(err)
				}
			}
			stored := func(want string) {
				t.Helper()
				live, err := r.user.CoreV1().ConfigMaps(r.namespace).Get(r.ctx, "web", metav1.GetOptions{})
				if err != nil || live.Data["k"] != want || cm.Data["k"] != want || cm.ResourceVersion != live.ResourceVersion {
					t.Errorf("the server has %v, the caller %v; want %s (%v)", live.Data, cm.Data, want, err)
				}
			}
			set("1", client.DryRun())
			set("1")
			stored("1")
			set("2", client.DryRun())
			cm.Data["k"] = "2"
			if err := r.client.Update(r.ctx, cm); err != nil {
				t.Fatal(err)
			}
			stored("2")
			set("3", client.DryRun())
			if err := r.client.Patch(r.ctx, cm, client.RawPatch(types.MergePatchType,
				[]byte(`{"data":{"k":"3"}}`))); err != nil {
				t.Fatal(err)
			}
			stored("3")
			applied := func(opts ...client.WriteOption) {
				t.Helper()
				want := r.configMap("web")
				want.Data["k"] = "4"
				if err := r.client.Apply(r.ctx, want, append(opts, client.Force())...); err != nil {
					t.Fatal(err)
				}
				cm = want
			}
			applied(client.DryRun())
			applied()
			stored("4")
		})
	}
}

// The response to a dry run of the removal of the last finalizer shows the object's last state.
func TestDryRunOfTheLastFinalizer(t *testing.T) {
	t.Parallel()
	r := startDry(t, true)
	cm := r.configMap("web")
	cm.Finalizers = []string{"test.fairlead.io/kept"}
	if err := r.client.Create(r.ctx, cm); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Delete(r.ctx, cm); err != nil {
		t.Fatal(err)
	}
	deleted, err := r.user.CoreV1().ConfigMaps(r.namespace).Get(r.ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.arrived(t, configMaps, deleted.ResourceVersion)
	release := func(cm *corev1.ConfigMap) error { cm.Finalizers = nil; return nil }
	if err := client.Modify(r.ctx, r.client, cm, release, client.DryRun()); err != nil || len(cm.Finalizers) > 0 {
		t.Fatalf("the response is %+v, %v", cm, err)
	}
	r.unchanged(t, deleted)
}

// TestDryRunsOfSubresources makes dry runs of writes to the status, and of a delete with a grace period. client/e2e
// adds an eviction.
func TestDryRunsOfSubresources(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*dry, *corev1.Pod) error{
		"status": func(r *dry, p *corev1.Pod) error {
			p.Status.Phase = corev1.PodRunning
			return r.client.Status().Update(r.ctx, p, client.DryRun())
		},
		"modified status": func(r *dry, p *corev1.Pod) error {
			return client.ModifyStatus(r.ctx, r.client, p,
				func(p *corev1.Pod) error { p.Status.Phase = corev1.PodRunning; return nil }, client.DryRun())
		},
		"patched status": func(r *dry, p *corev1.Pod) error {
			return r.client.Status().Patch(r.ctx, p,
				client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`)), client.DryRun())
		},
		"delete with a grace period": func(r *dry, p *corev1.Pod) error {
			return r.client.Delete(r.ctx, p, client.DryRun(), client.Grace(5))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startDry(t, true)
			p := r.boundPod()
			if err := r.client.Create(r.ctx, p); err != nil {
				t.Fatal(err)
			}
			r.arrived(t, pods, p.ResourceVersion)
			version := p.ResourceVersion
			if err := write(r, p); err != nil {
				t.Fatal(err)
			}
			live, err := r.user.CoreV1().Pods(r.namespace).Get(r.ctx, "web", metav1.GetOptions{})
			if err != nil || live.ResourceVersion != version {
				t.Errorf("the server has %+v, %v", live, err)
			}
			got, err := client.Get[corev1.Pod](r.ctx, r.client, client.KeyOf(p))
			if err != nil || got.ResourceVersion != version || got.Status.Phase == corev1.PodRunning {
				t.Errorf("a read returns %+v, %v", got, err)
			}
			if n := r.cache.Stores(pods)[0].OverlayStats().Entries; n != 0 {
				t.Errorf("%d entries in the overlay", n)
			}
		})
	}
}

// The options of a delete apply whether or not the client knows the uid of the object.
func TestDeleteOptionsApply(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"watched": true, "not watched": false} {
		for how, bare := range map[string]bool{"by name": true, "by uid": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				r := startDry(t, watched)
				meta := func(m metav1.ObjectMeta) metav1.ObjectMeta {
					if bare {
						return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}
					}
					return m
				}
				for policy, finalizer := range map[metav1.DeletionPropagation]string{
					metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
					metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
				} {
					cm := r.configMap("web-" + string(policy[0]|0x20))
					if err := r.client.Create(r.ctx, cm); err != nil {
						t.Fatal(err)
					}
					if err := r.client.Delete(r.ctx, &corev1.ConfigMap{ObjectMeta: meta(cm.ObjectMeta)},
						client.Propagation(policy)); err != nil {
						t.Fatal(err)
					}
					got, err := client.Get[corev1.ConfigMap](r.ctx, r.client, client.KeyOf(cm))
					if err != nil || got.DeletionTimestamp == nil || len(got.Finalizers) != 1 || got.Finalizers[0] != finalizer {
						t.Errorf("%s leaves %+v, %v", policy, got, err)
					}
				}
				p := r.boundPod()
				if err := r.client.Create(r.ctx, p); err != nil {
					t.Fatal(err)
				}
				if err := r.client.Delete(r.ctx, &corev1.Pod{ObjectMeta: meta(p.ObjectMeta)}, client.Grace(7)); err != nil {
					t.Fatal(err)
				}
				got, err := client.Get[corev1.Pod](r.ctx, r.client, client.KeyOf(p))
				if err != nil || got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != 7 {
					t.Errorf("a grace period of 7 s leaves %+v, %v", got, err)
				}
				if err := r.client.Delete(r.ctx, &corev1.Pod{ObjectMeta: meta(p.ObjectMeta)}, client.Grace(0)); err != nil {
					t.Fatal(err)
				}
				if _, err := client.Get[corev1.Pod](r.ctx, r.client, client.KeyOf(p)); !apierrors.IsNotFound(err) {
					t.Errorf("deleted at once: %v", err)
				}
				p = r.boundPod()
				p.Name = "all"
				if err := r.client.Create(r.ctx, p); err != nil {
					t.Fatal(err)
				}
				if err := r.client.DeleteCollection(r.ctx, p, client.Selection{Namespace: r.namespace},
					client.Grace(9)); err != nil {
					t.Fatal(err)
				}
				got, err = client.Get[corev1.Pod](r.ctx, r.client, client.KeyOf(p))
				if err != nil || got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != 9 {
					t.Errorf("a collection with a grace period of 9 s leaves %+v, %v", got, err)
				}
			})
		}
	}
}

// Options and a Body exclude each other in a delete, since the options would be silently dropped.
func TestDeleteWithBody(t *testing.T) {
	t.Parallel()
	r := startDry(t, false)
	cm := r.configMap("web")
	if err := r.client.Create(r.ctx, cm); err != nil {
		t.Fatal(err)
	}
	body := client.Body(r.configMap("web"))
	for name, err := range map[string]error{
		"the object itself": r.client.Delete(r.ctx, cm, body),
		"a dry run":         r.client.SubResource("x").Delete(r.ctx, cm, body, client.DryRun()),
		"a uid":             r.client.SubResource("x").Delete(r.ctx, cm, body, client.SameUID()),
		"a grace period":    r.client.SubResource("x").Delete(r.ctx, cm, body, client.Grace(0)),
		"a propagation": r.client.SubResource("x").Delete(r.ctx, cm, body,
			client.Propagation(metav1.DeletePropagationOrphan)),
		"a collection": r.client.DeleteCollection(r.ctx, cm, client.Selection{Namespace: r.namespace}, body),
	} {
		if err == nil || apierrors.IsNotFound(err) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	r.unchanged(t, cm)
}
