package e2e_test

import (
	"errors"
	"fmt"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A typed clientset reads its own writes from the stores, whatever the watch does.
func TestOverlayTyped(t *testing.T) {
	t.Parallel()
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			t.Parallel()
			o := startOverlayBed(t)
			o.watch()
			cfg := rest.CopyConfig(o.config)
			cfg.ContentType = contentType
			cs := kubernetes.NewForConfigOrDie(cfg)
			ctx, opts := o.ctx, metav1.PatchOptions{FieldManager: "test"}
			cms, pods := cs.CoreV1().ConfigMaps(o.namespace), cs.CoreV1().Pods(o.namespace)
			deps := cs.AppsV1().Deployments(o.namespace)
			apply := func(name string) error {
				cm := corev1ac.ConfigMap(name, o.namespace).WithData(map[string]string{"a": "1"})
				_, err := cms.Apply(ctx, cm, metav1.ApplyOptions{FieldManager: "test"})
				return err
			}
			evict := func(o *metav1.DeleteOptions) error {
				pod := metav1.ObjectMeta{Name: "pod"}
				return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: pod, DeleteOptions: o})
			}
			cm := o.configMap("cm", "k", "1")
			var generated string
			o.play([]write{
				{reason: "create", of: mapsOf, name: "cm", do: func() (err error) {
					cm, err = cms.Create(ctx, cm, metav1.CreateOptions{})
					return err
				}},
				{reason: "create of an existing object", of: mapsOf, name: "cm", fails: true, do: func() error {
					_, err := cms.Create(ctx, o.configMap("cm"), metav1.CreateOptions{})
					return err
				}},
				{reason: "update", of: mapsOf, name: "cm", do: func() (err error) {
					cm.Data["k"] = "2"
					cm, err = cms.Update(ctx, cm, metav1.UpdateOptions{})
					return err
				}},
				{reason: "update that conflicts", of: mapsOf, name: "cm", fails: true, do: func() error {
					old := cm.DeepCopy()
					old.ResourceVersion = "1"
					_, err := cms.Update(ctx, old, metav1.UpdateOptions{})
					return err
				}},
				{reason: "update that is a dry run", of: mapsOf, name: "cm", do: func() error {
					dry := cm.DeepCopy()
					dry.Data["k"] = "dry"
					_, err := cms.Update(ctx, dry, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
					return err
				}},
				{reason: "merge patch", of: mapsOf, name: "cm", do: func() error {
					typ, data := mergePatch(`{"data":{"k":"3"},"metadata":{"finalizers":["` + finalizer + `"]}}`)
					_, err := cms.Patch(ctx, "cm", typ, data, opts)
					return err
				}},
				{reason: "strategic merge patch", of: mapsOf, name: "cm", do: func() error {
					_, err := cms.Patch(ctx, "cm", types.StrategicMergePatchType, []byte(`{"data":{"k":"4"}}`), opts)
					return err
				}},
				{reason: "json patch", of: mapsOf, name: "cm", do: func() error {
					ops := []byte(`[{"op":"replace","path":"/data/k","value":"5"}]`)
					_, err := cms.Patch(ctx, "cm", types.JSONPatchType, ops, opts)
					return err
				}},
				{reason: "apply", of: mapsOf, name: "cm", do: func() error { return apply("cm") }},
				{reason: "apply that creates", of: mapsOf, name: "applied", do: func() error {
					return apply("applied")
				}},
				{reason: "delete that is a dry run", of: mapsOf, name: "applied", do: func() error {
					return cms.Delete(ctx, "applied", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
				}},
				{reason: "delete", of: mapsOf, name: "applied", do: func() error {
					return cms.Delete(ctx, "applied", metav1.DeleteOptions{})
				}},
				{reason: "delete of an absent object", of: mapsOf, name: "applied", fails: true, do: func() error {
					return cms.Delete(ctx, "applied", metav1.DeleteOptions{})
				}},
				{reason: "create again", of: mapsOf, name: "applied", do: func() error {
					_, err := cms.Create(ctx, o.configMap("applied"), metav1.CreateOptions{})
					return err
				}},
				{reason: "delete after another client's delete", of: mapsOf, name: "applied", fails: true, do: func() error {
					others := o.live.Resource(mapsOf).Namespace(o.namespace)
					if others.Delete(ctx, "applied", metav1.DeleteOptions{}) != nil {
						return nil
					}
					return cms.Delete(ctx, "applied", metav1.DeleteOptions{})
				}},
				{reason: "delete with a finalizer", of: mapsOf, name: "cm", do: func() error {
					return cms.Delete(ctx, "cm", metav1.DeleteOptions{})
				}},
				{reason: "the last finalizer goes", of: mapsOf, name: "cm", do: func() error {
					typ, data := mergePatch(`{"metadata":{"finalizers":null}}`)
					_, err := cms.Patch(ctx, "cm", typ, data, opts)
					return err
				}},
				{reason: "foreground delete", of: mapsOf, name: "front", do: func() error {
					if _, err := cms.Create(ctx, o.configMap("front"), metav1.CreateOptions{}); err != nil {
						return err
					}
					front := metav1.DeletePropagationForeground
					return cms.Delete(ctx, "front", metav1.DeleteOptions{PropagationPolicy: &front})
				}},
				{reason: "a pod", of: podsOf, name: "pod", do: func() error {
					p := o.pod("pod")
					p.Labels = map[string]string{"l": "1"}
					_, err := pods.Create(ctx, p, metav1.CreateOptions{})
					return err
				}},
				{reason: "a status", of: podsOf, name: "pod", do: func() error {
					p, err := pods.Get(ctx, "pod", metav1.GetOptions{})
					if err != nil {
						return err
					}
					p.Status.Phase = corev1.PodRunning
					_, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
					return err
				}},
				{reason: "a patch of the status", of: podsOf, name: "pod", do: func() error {
					typ, data := mergePatch(`{"status":{"message":"m"}}`)
					_, err := pods.Patch(ctx, "pod", typ, data, opts, "status")
					return err
				}},
				{reason: "an ephemeral container", of: podsOf, name: "pod", do: func() error {
					p, err := pods.Get(ctx, "pod", metav1.GetOptions{})
					if err != nil {
						return err
					}
					container := corev1.EphemeralContainerCommon{
						Name: "e", Image: "i", ImagePullPolicy: corev1.PullAlways,
						TerminationMessagePolicy: corev1.TerminationMessageReadFile,
					}
					p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: container}}
					_, err = pods.UpdateEphemeralContainers(ctx, "pod", p, metav1.UpdateOptions{})
					return err
				}},
				{reason: "a binding", of: podsOf, name: "pod", do: func() error {
					return pods.Bind(ctx, &corev1.Binding{
						ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "pod"},
						Target:     corev1.ObjectReference{Kind: "Node", Name: "nowhere"},
					}, metav1.CreateOptions{})
				}},
				{reason: "an eviction that is a dry run", of: podsOf, name: "pod", do: func() error {
					return evict(&metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
				}},
				{reason: "an eviction, with a grace period", of: podsOf, name: "pod", do: func() error {
					return evict(nil)
				}},
				{reason: "a delete at once", of: podsOf, name: "pod", do: func() error {
					none := int64(0)
					return pods.Delete(ctx, "pod", metav1.DeleteOptions{GracePeriodSeconds: &none})
				}},
				{reason: "a generated name", of: podsOf, name: "none", do: func() error {
					p := o.pod("")
					p.GenerateName = "generated-"
					made, err := pods.Create(ctx, p, metav1.CreateOptions{})
					generated = made.GetName()
					return err
				}},
				{reason: "a deployment", of: deployments, name: "dep", do: func() error {
					_, err := deps.Create(ctx, o.deployment("dep"), metav1.CreateOptions{})
					return err
				}},
				{reason: "a scale", of: deployments, name: "dep", do: func() error {
					_, err := deps.UpdateScale(ctx, "dep", &autoscalingv1.Scale{
						ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "dep"},
						Spec:       autoscalingv1.ScaleSpec{Replicas: 3},
					}, metav1.UpdateOptions{})
					return err
				}},
				{reason: "an apply of the status", of: deployments, name: "dep", do: func() error {
					_, err := deps.ApplyStatus(ctx, appsv1ac.Deployment("dep", o.namespace).WithStatus(
						appsv1ac.DeploymentStatus().WithReplicas(3)), metav1.ApplyOptions{FieldManager: "test"})
					return err
				}},
			})
			for _, stale := range o.check(podsOf, generated) {
				t.Errorf("generated name: %s", stale)
			}
			for i := range 5 {
				c := o.configMap(fmt.Sprint("many-", i))
				c.Labels = map[string]string{"set": fmt.Sprint(i % 2)}
				if i == 4 {
					c.Finalizers = []string{finalizer}
				}
				if _, err := cms.Create(ctx, c, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			all := []string{"many-0", "many-1", "many-2", "many-3", "many-4"}
			for _, del := range []struct {
				reason string
				opts   metav1.DeleteOptions
				list   metav1.ListOptions
			}{
				{"a dry run", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{}},
				{"some", metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "set=0"}},
				{"all", metav1.DeleteOptions{}, metav1.ListOptions{}},
			} {
				if err := cms.DeleteCollection(ctx, del.opts, del.list); err != nil {
					t.Fatal(err)
				}
				for _, stale := range o.check(mapsOf, all...) {
					t.Errorf("delete of many, %s: %s", del.reason, stale)
				}
			}
		})
	}
}

// A dynamic client reads its own writes from the stores, too.
func TestOverlayDynamic(t *testing.T) {
	t.Parallel()
	o := startOverlayBed(t)
	o.watch()
	dyn := dynamic.NewForConfigOrDie(o.config).Resource(mapsOf).Namespace(o.namespace)
	u := func(data string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "cm"}, "data": map[string]any{"k": data},
		}}
	}
	o.play([]write{
		{reason: "create", of: mapsOf, name: "cm", do: func() error {
			_, err := dyn.Create(o.ctx, u("1"), metav1.CreateOptions{})
			return err
		}},
		{reason: "update", of: mapsOf, name: "cm", do: func() error {
			_, err := dyn.Update(o.ctx, u("2"), metav1.UpdateOptions{})
			return err
		}},
		{reason: "patch", of: mapsOf, name: "cm", do: func() error {
			typ, data := mergePatch(`{"data":{"k":"3"}}`)
			_, err := dyn.Patch(o.ctx, "cm", typ, data, metav1.PatchOptions{})
			return err
		}},
		{reason: "apply", of: mapsOf, name: "cm", do: func() error {
			_, err := dyn.Apply(o.ctx, "cm", u("4"), metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err
		}},
		{reason: "delete", of: mapsOf, name: "cm", do: func() error {
			return dyn.Delete(o.ctx, "cm", metav1.DeleteOptions{})
		}},
		{reason: "delete of many", of: mapsOf, name: "cm", do: func() error {
			_, err := dyn.Create(o.ctx, u("1"), metav1.CreateOptions{})
			return errors.Join(err, dyn.DeleteCollection(o.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		}},
	})
}

// The responses to a metadata client contain metadata alone, so the stores request the objects.
func TestOverlayMetadata(t *testing.T) {
	t.Parallel()
	o := startOverlayBed(t)
	o.watch()
	o.open(store.Request{Kind: corev1.SchemeGroupVersion.WithKind("Namespace")})
	meta := metadata.NewForConfigOrDie(o.config)
	cms := meta.Resource(mapsOf).Namespace(o.namespace)
	cs := kubernetes.NewForConfigOrDie(o.config)
	o.play([]write{
		{reason: "patch", of: mapsOf, name: "cm", do: func() error {
			cm := o.configMap("cm", "k", "v")
			if _, err := cs.CoreV1().ConfigMaps(o.namespace).Create(o.ctx, cm, metav1.CreateOptions{}); err != nil {
				return err
			}
			typ, data := mergePatch(`{"metadata":{"finalizers":["` + finalizer + `"],"labels":{"a":"b"}}}`)
			_, err := cms.Patch(o.ctx, "cm", typ, data, metav1.PatchOptions{})
			return err
		}},
		{reason: "delete", of: mapsOf, name: "cm", do: func() error {
			return cms.Delete(o.ctx, "cm", metav1.DeleteOptions{})
		}},
		{reason: "last finalizer", of: mapsOf, name: "cm", do: func() error {
			typ, data := mergePatch(`{"metadata":{"finalizers":null}}`)
			_, err := cms.Patch(o.ctx, "cm", typ, data, metav1.PatchOptions{})
			return err
		}},
		{reason: "delete of many", of: mapsOf, name: "cm", do: func() error {
			_, err := cs.CoreV1().ConfigMaps(o.namespace).Create(o.ctx, o.configMap("cm"), metav1.CreateOptions{})
			return errors.Join(err, cms.DeleteCollection(o.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		}},
	})

	// The finalizers in the spec of a namespace keep it, and its metadata does not show them.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace + "-end"}}
	clusterWide := *o
	clusterWide.namespace = ""
	clusterWide.play([]write{
		{reason: "create of a namespace", of: namespaces, name: ns.Name, do: func() error {
			_, err := cs.CoreV1().Namespaces().Create(o.ctx, ns, metav1.CreateOptions{})
			return err
		}},
		{reason: "delete of a namespace", of: namespaces, name: ns.Name, do: func() error {
			return meta.Resource(namespaces).Delete(o.ctx, ns.Name, metav1.DeleteOptions{})
		}},
		{reason: "patch during a deletion", of: namespaces, name: ns.Name, do: func() error {
			typ, data := mergePatch(`{"metadata":{"labels":{"a":"b"}}}`)
			_, err := meta.Resource(namespaces).Patch(o.ctx, ns.Name, typ, data, metav1.PatchOptions{})
			return err
		}},
		{reason: "finalize", of: namespaces, name: ns.Name, do: func() error {
			have, err := cs.CoreV1().Namespaces().Get(o.ctx, ns.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			have.Spec.Finalizers = nil
			_, err = cs.CoreV1().Namespaces().Finalize(o.ctx, have, metav1.UpdateOptions{})
			return err
		}},
	})
}

// A store of one version or group of an API gets writes through another one. It requests the object in its own version.
func TestOverlayVersions(t *testing.T) {
	t.Parallel()
	o := startOverlayBed(t)
	scalers := autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers")
	events := corev1.SchemeGroupVersion.WithResource("events")
	for _, kind := range []schema.GroupVersionKind{
		autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), corev1.SchemeGroupVersion.WithKind("Event"),
	} {
		o.open(store.Request{Kind: kind, Options: []cache.Option{cache.Namespaces(o.namespace)}})
	}
	t.Cleanup(o.watches.shut())
	cs := kubernetes.NewForConfigOrDie(o.config)
	hpas, evs := cs.AutoscalingV2().HorizontalPodAutoscalers(o.namespace), cs.EventsV1().Events(o.namespace)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "x"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"},
			MaxReplicas:    3,
		},
	}
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "x"}, EventTime: metav1.NowMicro(), Type: "Normal", Reason: "Tested",
		Action: "Test", ReportingController: "test.fairlead.io/test", ReportingInstance: "one",
		Regarding: corev1.ObjectReference{Namespace: o.namespace},
	}
	o.play([]write{
		{reason: "create", of: scalers, name: "x", do: func() (err error) {
			scaler, err = hpas.Create(o.ctx, scaler, metav1.CreateOptions{})
			return err
		}},
		{reason: "update", of: scalers, name: "x", do: func() error {
			scaler.Spec.MaxReplicas = 4
			_, err := hpas.Update(o.ctx, scaler, metav1.UpdateOptions{})
			return err
		}},
		{reason: "delete", of: scalers, name: "x", do: func() error {
			return hpas.Delete(o.ctx, "x", metav1.DeleteOptions{})
		}},
		{reason: "an event", of: events, name: "x", do: func() error {
			_, err := evs.Create(o.ctx, event, metav1.CreateOptions{})
			return err
		}},
		{reason: "a delete of the event", of: events, name: "x", do: func() error {
			return evs.Delete(o.ctx, "x", metav1.DeleteOptions{})
		}},
	})
}
