package controllers

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

var daemonSetKind = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}

// runDaemonSet is the controller of DaemonSets, for the only node.
func runDaemonSet(w *world, o *object) decision {
	ds := as[appsv1.DaemonSet](o)
	owned, adopt := claim(o, daemonSetKind, ds.Spec.Selector, w.all(pods, o.namespace))
	if adopt != nil {
		return send(adopt)
	}
	hash := templateHash(&ds.Spec.Template, ds.Status.CollisionCount)
	var living []*object
	for _, p := range owned {
		if !p.isDeleted {
			living = append(living, p)
		}
	}
	slices.SortFunc(living, func(a, b *object) int {
		at := as[corev1.Pod](b).CreationTimestamp
		if c := as[corev1.Pod](a).CreationTimestamp.Compare(at.Time); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	if !o.isDeleted {
		switch {
		case len(owned) == 0 && w.get(nodes, "", simnode.NodeName) != nil:
			return send(createPod(daemon(o, ds, hash)))
		case len(living) > 1:
			return send(remove(manager, living[len(living)-1], "", nil))
		case len(living) == 1 && simnode.IsFinished(as[corev1.Pod](living[0])),
			len(living) == 1 && len(owned) == 1 && revisionLabel(living[0]) != hash &&
				ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType:
			return send(remove(manager, living[0], "", nil))
		}
	}
	return daemonSetStatus(w, o, ds, owned, hash)
}

// daemon returns the pod of a DaemonSet.
func daemon(o *object, ds *appsv1.DaemonSet, hash string) *corev1.Pod {
	pod := newPod(&ds.Spec.Template, o, daemonSetKind)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
	if generation := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" {
		pod.Labels["pod-template-generation"] = generation
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{simnode.NodeName},
			}},
		}}},
	}
	return pod
}

func daemonSetStatus(w *world, o *object, ds *appsv1.DaemonSet, owned []*object, hash string) decision {
	next := ds.DeepCopy()
	s := &next.Status
	*s = appsv1.DaemonSetStatus{
		ObservedGeneration: ds.Generation, CollisionCount: s.CollisionCount, Conditions: s.Conditions,
	}
	available := newAvailability(ds.Spec.MinReadySeconds)
	if w.get(nodes, "", simnode.NodeName) != nil {
		s.DesiredNumberScheduled, s.NumberUnavailable = 1, 1
	}
	if len(owned) > 0 {
		pod := as[corev1.Pod](owned[0])
		s.CurrentNumberScheduled = 1
		if isReady(pod) {
			s.NumberReady = 1
		}
		if available.holds(pod) {
			s.NumberAvailable, s.NumberUnavailable = 1, 0
		}
		if revisionLabel(owned[0]) == hash {
			s.UpdatedNumberScheduled = 1
		}
	}
	if apiequality.Semantic.DeepEqual(next.Status, ds.Status) {
		return decision{again: available.next}
	}
	return send(update(manager, o, "status", next))
}
