package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

// runPod is the scheduler and the kubelet of the only node.
func runPod(w *world, o *object) decision {
	pod := as[corev1.Pod](o)
	switch {
	case pod.Spec.NodeName == "" && !o.isDeleted:
		return schedule(w, o, pod)
	case pod.Spec.NodeName != simnode.NodeName:
		return decision{}
	case o.isDeleted:
		return endPod(o, pod)
	case simnode.IsFinished(pod):
		return decision{}
	}
	plan, err := simnode.PlanOf(pod)
	if err != nil { // of an annotation; another annotation is a change
		return decision{}
	}
	next, now := pod.DeepCopy(), time.Now()
	wait := plan.Advance(next, missing(w, pod), now)
	// The API server sets it with the binding, if it has that subresource.
	simnode.SetCondition(next, corev1.PodScheduled, corev1.ConditionTrue, "", "")
	if d := podStatus(kubelet, o, pod, next); len(d.requests) > 0 {
		return d
	}
	if wait > 0 {
		return decision{again: now.Add(wait)}
	}
	return decision{}
}

func podStatus(agent string, o *object, pod, next *corev1.Pod) decision {
	if apiequality.Semantic.DeepEqual(next.Status, pod.Status) {
		return decision{}
	}
	return send(update(agent, o, "status", next))
}

// schedule binds a pod to the node. A pod that has to wait has the reason in its condition PodScheduled.
func schedule(w *world, o *object, pod *corev1.Pod) decision {
	if pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName ||
		len(pod.Spec.SchedulingGates) > 0 {
		return decision{}
	}
	reason, claim := unbound(w, pod)
	switch {
	case claim != nil:
		return send(patch(scheduler, claim, map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{simnode.SelectedNode: simnode.NodeName},
		}}))
	case reason != "":
		next := pod.DeepCopy()
		simnode.SetCondition(next, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, reason)
		return podStatus(scheduler, o, pod, next)
	case slices.Contains(o.res.Subresources, "binding"):
		return send(&request{
			agent: scheduler, method: http.MethodPost, path: o.pathTo("binding"), contentType: runtime.ContentTypeJSON,
			body: &corev1.Binding{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
				Target:     corev1.ObjectReference{Kind: "Node", Name: simnode.NodeName},
			},
		})
	}
	return send(patch(scheduler, o, map[string]any{"spec": map[string]any{"nodeName": simnode.NodeName}}))
}

// unbound returns why the claims of a pod do not let it be scheduled; empty if they do. It also returns the claim that
// waits for its first consumer, if there is one.
func unbound(w *world, pod *corev1.Pod) (string, *object) {
	for _, v := range pod.Spec.Volumes {
		var name string
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name
		default:
			continue
		}
		o := w.get(claims, pod.Namespace, name)
		if o == nil {
			return fmt.Sprintf("persistentvolumeclaim %q not found", name), nil
		}
		claim := as[corev1.PersistentVolumeClaim](o)
		if claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		if class := classOf(w, claim); class != nil && simnode.WaitsForConsumer(class) &&
			claim.Annotations[simnode.SelectedNode] == "" {
			return "", o
		}
		return fmt.Sprintf("persistentvolumeclaim %q is not bound", name), nil
	}
	return "", nil
}

// classOf returns the class of a claim; nil if it has none or the class does not exist.
func classOf(w *world, claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return nil
	}
	if o := w.get(classes, "", *claim.Spec.StorageClassName); o != nil {
		return as[storagev1.StorageClass](o)
	}
	return nil
}

// missing returns the first ConfigMap or Secret that a pod needs and that does not exist; empty if there is none.
func missing(w *world, pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodRunning { // it has started with what it needs
		return ""
	}
	for _, ref := range simnode.References(pod) {
		resource := configMaps
		if ref.Kind == "Secret" {
			resource = secrets
		}
		if w.get(resource, pod.Namespace, ref.Name) == nil {
			return fmt.Sprintf("%s %q not found", ref.Kind, ref.Name)
		}
	}
	return ""
}

// endPod ends the containers of a deleted pod, and removes it.
func endPod(o *object, pod *corev1.Pod) decision {
	if !simnode.IsFinished(pod) {
		next := pod.DeepCopy()
		simnode.Terminate(next, simnode.Killed, time.Now())
		return podStatus(kubelet, o, pod, next)
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil && *s == 0 {
		return decision{} // only finalizers keep it
	}
	return send(remove(kubelet, o, "", new(int64(0))))
}

// isActive reports whether a pod counts as a replica.
func isActive(pod *corev1.Pod) bool { return !simnode.IsFinished(pod) && pod.DeletionTimestamp == nil }

// readySince returns since when a pod is ready.
func readySince(pod *corev1.Pod) (since time.Time, ok bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			if c.Status == corev1.ConditionTrue {
				return c.LastTransitionTime.Time, true
			}
			return time.Time{}, false
		}
	}
	return time.Time{}, false
}

func isReady(pod *corev1.Pod) bool { _, ok := readySince(pod); return ok }

// availability tells whether pods have been ready for long enough, and when the next of them will have been.
type availability struct {
	seconds int32 // minReadySeconds
	now     time.Time
	next    time.Time // zero if none waits
}

func newAvailability(seconds int32) *availability {
	return &availability{seconds: seconds, now: time.Now()}
}

func (a *availability) holds(pod *corev1.Pod) bool {
	since, ok := readySince(pod)
	if !ok || a.seconds == 0 {
		return ok
	}
	at := since.Add(time.Duration(a.seconds) * time.Second)
	if !at.After(a.now) {
		return true
	}
	if a.next.IsZero() || at.Before(a.next) {
		a.next = at
	}
	return false
}

// claim returns the objects of a list that an owner controls, as the real controllers do: it adopts an orphan that its
// selector matches, and releases one of its own that does not match any more. The request is such a write.
func claim(owner *object, kind metav1.TypeMeta, selector *metav1.LabelSelector, list []*object) ([]*object, *request) {
	match, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || match.Empty() {
		return nil, nil
	}
	var mine []*object
	for _, o := range list {
		matches := match.Matches(labels.Set(o.u.GetLabels()))
		switch ref := o.controllerOf(); {
		case ref != nil && ref.UID != owner.uid, ref == nil && (owner.isDeleted || o.isDeleted || !matches):
		case ref == nil:
			return nil, withOwners(o, append(slices.Clone(o.owners), *controllerRef(owner, kind)))
		case matches:
			mine = append(mine, o)
		case !owner.isDeleted:
			return nil, withOwners(o, without(o.owners, owner.uid))
		}
	}
	return mine, nil
}

func controllerRef(owner *object, kind metav1.TypeMeta) *metav1.OwnerReference {
	return &metav1.OwnerReference{
		APIVersion: kind.APIVersion, Kind: kind.Kind, Name: owner.name, UID: owner.uid,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// newPod returns a pod of a template, which its owner names.
func newPod(template *corev1.PodTemplateSpec, owner *object, kind metav1.TypeMeta) *corev1.Pod {
	t := template.DeepCopy()
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.namespace, GenerateName: owner.name + "-", Labels: t.Labels, Annotations: t.Annotations,
			Finalizers: t.Finalizers, OwnerReferences: []metav1.OwnerReference{*controllerRef(owner, kind)},
		},
		Spec: t.Spec,
	}
	return pod
}

func createPod(pod *corev1.Pod) *request { return create(manager, pods, pod.Namespace, pod) }
