package apiserver

import (
	stderrors "errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// bind assigns a pod to a node, as the scheduler asks for. The generation stays.
func (x *exchange) bind() error {
	var binding corev1.Binding
	if err := x.decodeTyped(&binding); err != nil {
		return err
	}
	for {
		base := x.s.store.get(x.table, objectKey(x.req.Namespace, x.req.Name))
		if base == nil {
			return errors.NewNotFound(x.groupResource(), x.req.Name)
		}
		live, err := base.copy()
		if err != nil {
			return err
		}
		if err := x.bound(live, &binding); err != nil {
			return err
		}
		if _, err := x.s.persist(base, live, false); err == nil {
			break
		} else if !stderrors.Is(err, errRaced) {
			return err
		}
	}
	x.out.whole(http.StatusCreated, x.enc.contentType(false),
		x.enc.status(metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}))
	return nil
}

// bound changes a pod to the one that is bound.
func (x *exchange) bound(u *unstructured.Unstructured, binding *corev1.Binding) error {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		return err
	}
	conflict := func(format string, args ...any) error {
		return errors.NewConflict(x.groupResource(), pod.Name, fmt.Errorf(format, args...))
	}
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return conflict("precondition failed: UID in precondition: %s, UID in object meta: %s", binding.UID, pod.UID)
	case pod.DeletionTimestamp != nil:
		return conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return conflict("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return conflict("pod %s has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = binding.Target.Name
	for name, value := range binding.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, name, value)
	}
	scheduled := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
	}
	conditions := []corev1.PodCondition{scheduled}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled {
			conditions = append(conditions, c)
		}
	}
	pod.Status.Conditions = conditions
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return err
	}
	u.Object, err = normalize(x.table, content)
	return err
}
