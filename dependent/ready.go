package dependent

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/client"
)

// IsReady reports whether an object has reached the state of its spec. Use it with [Ready]. An object is ready in these
// states:
//
//   - A Deployment or DaemonSet is rolled out, and all of its pods are available.
//   - A StatefulSet is rolled out, and all of its pods are ready.
//   - A Job is complete.
//   - A Pod is ready or has succeeded.
//   - A PersistentVolumeClaim is bound.
//   - A Service of type LoadBalancer has an address.
//   - Any other object has the condition Ready, or else Available, with status True. Neither the condition nor the
//     status may have an observedGeneration older than the generation. Without these conditions it is ready as soon as
//     it exists.
func IsReady[C any, PC client.ObjectOf[C]](child *C) bool {
	if child == nil {
		return false
	}
	switch o := any(PC(child)).(type) {
	case *appsv1.Deployment:
		s, want := o.Status, replicas(o.Spec.Replicas)
		return s.ObservedGeneration >= o.Generation && s.UpdatedReplicas == want && s.Replicas == want &&
			s.AvailableReplicas == want
	case *appsv1.StatefulSet:
		s, want := o.Status, replicas(o.Spec.Replicas)
		return s.ObservedGeneration >= o.Generation && s.ReadyReplicas == want && s.UpdatedReplicas == want &&
			s.UpdateRevision == s.CurrentRevision
	case *appsv1.DaemonSet:
		s := o.Status
		return s.ObservedGeneration >= o.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled &&
			s.NumberAvailable == s.DesiredNumberScheduled
	case *batchv1.Job:
		for _, c := range o.Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	case *corev1.Pod:
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return o.Status.Phase == corev1.PodSucceeded
	case *corev1.PersistentVolumeClaim:
		return o.Status.Phase == corev1.ClaimBound
	case *corev1.Service:
		return o.Spec.Type != corev1.ServiceTypeLoadBalancer || len(o.Status.LoadBalancer.Ingress) > 0
	default:
		return saysReady(PC(child))
	}
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// saysReady checks the conditions of an object of any kind.
func saysReady(obj client.Object) bool {
	var content map[string]any
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content = u.Object
	} else if m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err == nil {
		content = m
	}
	if seen, ok, _ := unstructured.NestedInt64(content, "status", "observedGeneration"); ok && seen < obj.GetGeneration() {
		return false
	}
	all, _, _ := unstructured.NestedSlice(content, "status", "conditions")
	says := map[string]bool{}
	for _, c := range all {
		c, _ := c.(map[string]any)
		typ, _ := c["type"].(string)
		seen, dated := c["observedGeneration"].(int64)
		says[typ] = c["status"] == string(metav1.ConditionTrue) && (!dated || seen >= obj.GetGeneration())
	}
	if ready, ok := says["Ready"]; ok {
		return ready
	}
	available, ok := says["Available"]
	return available || !ok
}
