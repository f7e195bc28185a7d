package controllers

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

var replicaSetKind = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}

func replicasOf(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// scaleReplicaSet is the controller of ReplicaSets.
func scaleReplicaSet(w *world, o *object) decision {
	rs := as[appsv1.ReplicaSet](o)
	var active []*object
	for _, p := range w.all(pods, o.namespace) {
		if isActive(as[corev1.Pod](p)) {
			active = append(active, p)
		}
	}
	active, adopt := claim(o, replicaSetKind, rs.Spec.Selector, active)
	if adopt != nil {
		return send(adopt)
	}
	if !o.isDeleted {
		switch diff := len(active) - int(replicasOf(rs.Spec.Replicas)); {
		case diff < 0:
			return send(createPod(newPod(&rs.Spec.Template, o, replicaSetKind)))
		case diff > 0:
			return send(remove(manager, slices.MinFunc(active, deletedFirst), "", nil))
		}
	}
	return replicaSetStatus(w, o, rs, active, nil)
}

// reportFailure is the controller of ReplicaSets after a failed write: it shows the failure in the status.
func reportFailure(w *world, k key, failure error) decision {
	o := w.get(k.resource, k.namespace, k.name)
	if o == nil || k.controller != ofReplicaSet || isConflict(failure) {
		return decision{}
	}
	var active []*object
	for _, p := range w.dependents(o.uid) {
		if p.resource == pods && isActive(as[corev1.Pod](p)) {
			active = append(active, p)
		}
	}
	d := replicaSetStatus(w, o, as[appsv1.ReplicaSet](o), active, failure)
	for _, r := range d.requests {
		r.isReport = true
	}
	return d
}

func replicaSetStatus(w *world, o *object, rs *appsv1.ReplicaSet, active []*object, failure error) decision {
	next := rs.DeepCopy()
	next.Status.ObservedGeneration = rs.Generation
	next.Status.Replicas = int32(len(active))
	next.Status.FullyLabeledReplicas, next.Status.ReadyReplicas, next.Status.AvailableReplicas = 0, 0, 0
	template := labels.SelectorFromSet(rs.Spec.Template.Labels)
	available := newAvailability(rs.Spec.MinReadySeconds)
	for _, p := range active {
		pod := as[corev1.Pod](p)
		if template.Matches(labels.Set(pod.Labels)) {
			next.Status.FullyLabeledReplicas++
		}
		if isReady(pod) {
			next.Status.ReadyReplicas++
		}
		if available.holds(pod) {
			next.Status.AvailableReplicas++
		}
	}
	terminating := int32(0)
	for _, p := range w.dependents(o.uid) {
		if p.resource == pods && p.isDeleted {
			terminating++
		}
	}
	next.Status.TerminatingReplicas = &terminating
	isFailure := func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure }
	switch hasFailure := slices.ContainsFunc(rs.Status.Conditions, isFailure); {
	case failure == nil:
		next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions, isFailure)
	case !hasFailure:
		reason := "FailedCreate"
		if len(active) > int(replicasOf(rs.Spec.Replicas)) {
			reason = "FailedDelete"
		}
		next.Status.Conditions = append(next.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason, Message: failure.Error(),
			LastTransitionTime: metav1.Now(),
		})
	}
	if apiequality.Semantic.DeepEqual(next.Status, rs.Status) {
		return decision{again: available.next}
	}
	return send(update(manager, o, "status", next))
}

// deletedFirst orders pods for deletion, as ActivePodsWithRanks of the real controller on one node.
func deletedFirst(a, b *object) int {
	p, q := as[corev1.Pod](a), as[corev1.Pod](b)
	phases := map[corev1.PodPhase]int{corev1.PodPending: 0, corev1.PodUnknown: 1, corev1.PodRunning: 2}
	since, pReady := readySince(p)
	sinceQ, qReady := readySince(q)
	return cmp.Or(
		falseFirst(p.Spec.NodeName != "", q.Spec.NodeName != ""),
		cmp.Compare(phases[p.Status.Phase], phases[q.Status.Phase]),
		falseFirst(pReady, qReady),
		cmp.Compare(deletionCost(p), deletionCost(q)),
		sinceQ.Compare(since),
		cmp.Compare(restarts(q), restarts(p)),
		q.CreationTimestamp.Compare(p.CreationTimestamp.Time),
		strings.Compare(p.Name, q.Name),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func deletionCost(pod *corev1.Pod) int64 {
	n, _ := strconv.ParseInt(pod.Annotations[corev1.PodDeletionCost], 10, 32) // without one: 0
	return n
}

func restarts(pod *corev1.Pod) (most int32) {
	for _, c := range pod.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}
