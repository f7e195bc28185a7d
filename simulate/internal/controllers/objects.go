package controllers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

// Objects returns what a new cluster has: the node, the default StorageClass, and the given namespaces with their
// default objects. A server that has them from the start saves the writes of Run. The caller owns the objects.
func Objects(names ...string) []runtime.Object {
	node, class := simnode.Node(), simnode.DefaultClass()
	node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	simnode.SetNodeStatus(node)
	class.TypeMeta = metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}
	objects := []runtime.Object{node, class}
	for _, name := range names {
		objects = append(objects, &corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{corev1.LabelMetadataName: name},
			},
			Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}, defaultAccount(name), caBundle(name))
	}
	return objects
}
