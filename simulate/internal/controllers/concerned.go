package controllers

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workloads are the controllers of pods.
var workloads = map[string]string{
	"ReplicaSet": ofReplicaSet, "StatefulSet": ofStatefulSet, "DaemonSet": ofDaemonSet, "Job": ofJob,
	"Deployment": ofDeployment,
}

// concerned returns the keys that a change of an object concerns. before is the state before, without a uid if there
// was none.
func (w *world) concerned(before, now *object, isRemoved bool) []key {
	var keys []key
	mark := func(controller string, o *object) {
		if o != nil {
			keys = append(keys, keyOf(controller, o))
		}
	}
	markAll := func(controller, namespace string) {
		for _, o := range w.all(resourceOf[controller], namespace) {
			mark(controller, o)
		}
	}
	for controller, resource := range resourceOf {
		if controller == ofJobPod && !now.hasFinalizer(batchv1.JobTrackingFinalizer) {
			continue
		}
		if resource == now.resource && !isRemoved {
			mark(controller, now)
		}
	}
	keys = append(keys, w.garbage(before, now, isRemoved)...)
	if now.namespace != "" {
		if ns := w.get(namespaces, "", now.namespace); ns != nil &&
			(ns.isDeleted || isRemoved && (now.resource == accounts || now.resource == configMaps)) {
			mark(ofNamespace, ns)
		}
	}
	for _, o := range []*object{before, now} {
		if ref := o.controllerOf(); ref != nil && workloads[ref.Kind] != "" {
			mark(workloads[ref.Kind], w.get(resourceOf[workloads[ref.Kind]], now.namespace, ref.Name))
		}
	}
	switch now.resource {
	case pods:
		if now.controllerOf() == nil && !isRemoved { // a selector may match it
			for _, controller := range []string{ofReplicaSet, ofStatefulSet, ofDaemonSet, ofJob} {
				markAll(controller, now.namespace)
			}
		}
		if rs := now.controllerOf(); rs != nil && rs.Kind == "ReplicaSet" { // Recreate waits for the last pod
			if set := w.get(replicaSets, now.namespace, rs.Name); set != nil {
				if d := set.controllerOf(); d != nil {
					mark(ofDeployment, w.get(deployments, now.namespace, d.Name))
				}
			}
		}
		markAll(ofEndpoints, now.namespace)
		for _, v := range as[corev1.Pod](now).Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				mark(ofClaim, w.get(claims, now.namespace, v.PersistentVolumeClaim.ClaimName))
			}
		}
	case jobs:
		for _, p := range w.dependents(now.uid) {
			if p.hasFinalizer(batchv1.JobTrackingFinalizer) {
				mark(ofJobPod, p)
			}
		}
	case replicaSets:
		if now.controllerOf() == nil && !isRemoved {
			markAll(ofDeployment, now.namespace)
		}
	case configMaps, secrets:
		markAll(ofPod, now.namespace)
	case claims:
		markAll(ofPod, now.namespace)
		markAll(ofStatefulSet, now.namespace)
		mark(ofVolume, w.get(volumes, "", as[corev1.PersistentVolumeClaim](now).Spec.VolumeName))
	case volumes:
		if ref := as[corev1.PersistentVolume](now).Spec.ClaimRef; ref != nil {
			mark(ofClaim, w.get(claims, ref.Namespace, ref.Name))
		}
	case classes:
		for _, o := range w.tables[claims] {
			mark(ofClaim, o)
		}
	case slicesOfNets:
		mark(ofEndpoints, w.get(services, now.namespace, now.u.GetLabels()["kubernetes.io/service-name"]))
	case nodes:
		for _, o := range w.tables[daemonSets] {
			mark(ofDaemonSet, o)
		}
	}
	return keys
}

// garbage returns the keys of the garbage collector.
func (w *world) garbage(before, now *object, isRemoved bool) []key {
	if now.res.Kind == "Event" {
		return nil
	}
	var keys []key
	awaits := func(o *object) bool {
		return o.isDeleted && (o.hasFinalizer(metav1.FinalizerDeleteDependents) ||
			o.hasFinalizer(metav1.FinalizerOrphanDependents))
	}
	if !isRemoved && (len(now.owners) > 0 || awaits(now)) {
		keys = append(keys, keyOf(ofGarbage, now))
	}
	if isRemoved || before.uid != now.uid || awaits(now) != awaits(before) {
		for _, uid := range []*object{before, now} {
			for _, dependent := range w.dependents(uid.uid) {
				keys = append(keys, keyOf(ofGarbage, dependent))
			}
		}
	}
	for _, o := range []*object{before, now} {
		for _, ref := range o.owners {
			if owner := w.byUID[ref.UID]; owner != nil && awaits(owner) {
				keys = append(keys, keyOf(ofGarbage, owner))
			}
		}
	}
	if now.resource == crds {
		for gk, s := range w.kinds {
			if !s.isServed {
				delete(w.kinds, gk)
			}
		}
		for k := range w.blocked {
			keys = append(keys, k)
		}
		clear(w.blocked)
	}
	return keys
}
