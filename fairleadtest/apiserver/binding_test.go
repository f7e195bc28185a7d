package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A scheduler binds a pod once. The binding shows in the status and raises no generation.
func TestBinding(t *testing.T) {
	t.Parallel()
	s, err := apiserver.New(apiserver.Options{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	pods := c.CoreV1().Pods("default")
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bind := func(by, name string) error {
		return pods.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: pod.UID, Annotations: map[string]string{"by": by}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "local"},
		}, metav1.CreateOptions{})
	}
	if err := bind("me", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a missing pod: %v", err)
	}
	if err := bind("me", "web"); err != nil {
		t.Fatal(err)
	}
	if err := bind("you", "web"); !apierrors.IsConflict(err) {
		t.Errorf("a second binding: %v", err)
	}
	got, err := pods.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.NodeName != "local" || got.Annotations["by"] != "me" || got.Generation != pod.Generation ||
		len(got.Status.Conditions) != 1 || got.Status.Conditions[0].Type != corev1.PodScheduled {
		t.Errorf("the pod is %+v", got)
	}
}
