package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	account        = "default"
	rootCA         = "kube-root-ca.crt"
	rootCAKey      = "ca.crt"
	descriptionKey = "kubernetes.io/description"
	aboutCA        = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints " +
		"such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of " +
		"Kubernetes clusters."
)

// fillNamespace gives a namespace its default objects, and empties one that is deleted.
func fillNamespace(w *world, o *object) decision {
	ns := as[corev1.Namespace](o)
	if o.isDeleted {
		return emptyNamespace(w, o, ns)
	}
	if w.get(accounts, o.name, account) == nil {
		return send(create(manager, accounts, o.name, defaultAccount(o.name)))
	}
	if w.get(configMaps, o.name, rootCA) == nil {
		return send(create(manager, configMaps, o.name, caBundle(o.name)))
	}
	return decision{}
}

func defaultAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
	}
}

func caBundle(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: rootCA, Annotations: map[string]string{descriptionKey: aboutCA},
		},
		Data: map[string]string{rootCAKey: "a simulated cluster has no certificates\n"},
	}
}

// emptyNamespace deletes the contents of a namespace, pods first, and then lets the namespace go.
func emptyNamespace(w *world, o *object, ns *corev1.Namespace) decision {
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return decision{}
	}
	contents := w.all(pods, o.name) // the rest waits for the last of them
	if len(contents) == 0 {
		contents = nil
		for _, resource := range sortedKeys(w.tables) {
			contents = append(contents, w.all(resource, o.name)...)
		}
	}
	for _, c := range contents {
		if !c.isDeleted {
			return send(remove(manager, c, metav1.DeletePropagationBackground, nil))
		}
	}
	next := ns.DeepCopy()
	setRemaining(next, contents)
	if !apiequality.Semantic.DeepEqual(next.Status, ns.Status) {
		return send(update(manager, o, "status", next))
	}
	if len(contents) > 0 {
		return decision{}
	}
	next.Spec.Finalizers = slices.DeleteFunc(next.Spec.Finalizers,
		func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	return send(&request{
		agent: manager, method: http.MethodPut, path: o.pathTo("finalize"), contentType: runtime.ContentTypeJSON, body: next,
	})
}

// setRemaining sets the conditions of a namespace that is deleted.
func setRemaining(ns *corev1.Namespace, contents []*object) {
	resources, finalizers := map[string]int{}, map[string]int{}
	for _, c := range contents {
		resources[c.res.Resource+"."+c.res.Group]++
		for _, f := range c.finalizers {
			finalizers[f]++
		}
	}
	list := func(counts map[string]int, format string) string {
		var parts []string
		for _, name := range sortedKeys(counts) {
			parts = append(parts, fmt.Sprintf(format, name, counts[name]))
		}
		return strings.Join(parts, ", ")
	}
	set := func(kind corev1.NamespaceConditionType, isTrue bool, reason, message string) {
		c := corev1.NamespaceCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		}
		if isTrue {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
		if i < 0 {
			ns.Status.Conditions = append(ns.Status.Conditions, c)
			return
		}
		if old := ns.Status.Conditions[i]; old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		ns.Status.Conditions[i] = c
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, false, "ResourcesDiscovered", "All resources successfully discovered")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions",
		"All legacy kube types successfully parsed")
	set(corev1.NamespaceDeletionContentFailure, false, "ContentDeleted",
		"All content successfully deleted, may be waiting on finalization")
	if len(resources) > 0 {
		set(corev1.NamespaceContentRemaining, true, "SomeResourcesRemain",
			"Some resources are remaining: "+list(resources, "%s has %d resource instances"))
	} else {
		set(corev1.NamespaceContentRemaining, false, "ContentRemoved", "All content successfully removed")
	}
	if len(finalizers) > 0 {
		set(corev1.NamespaceFinalizersRemaining, true, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+list(finalizers, "%s in %d resource instances"))
	} else {
		set(corev1.NamespaceFinalizersRemaining, false, "ContentHasNoFinalizers",
			"All content-preserving finalizers finished")
	}
}
