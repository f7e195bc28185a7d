package kubelet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/simnode"
	"github.com/fairlead-io/fairlead/reconcile"
)

// recheck is the time until objects that a pod waits for are read again.
const recheck = time.Second

// pods is the controller that schedules, runs and ends pods. It has no state.
type pods struct{ c *client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *pods) Reconcile(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	switch {
	case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil:
		return r.schedule(ctx, pod)
	case pod.Spec.NodeName != NodeName:
		return reconcile.Done, nil
	case pod.DeletionTimestamp != nil:
		return reconcile.Retry(r.end(ctx, pod))
	case simnode.IsFinished(pod):
		return reconcile.Done, nil
	}
	return r.run(ctx, pod)
}

// schedule binds a pod to the node. A pod that has to wait has the reason in its condition PodScheduled.
func (r *pods) schedule(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	if pod.Spec.SchedulerName != "" && pod.Spec.SchedulerName != corev1.DefaultSchedulerName ||
		len(pod.Spec.SchedulingGates) > 0 { // the API server has told that in the condition
		return reconcile.Done, nil
	}
	waits, err := r.unbound(ctx, pod)
	switch {
	case err != nil:
		return reconcile.Retry(err)
	case waits != "":
		err := client.ModifyStatus(ctx, r.c, pod, func(p *corev1.Pod) error {
			simnode.SetCondition(p, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, waits)
			return nil
		})
		if err != nil {
			return reconcile.Retry(err)
		}
		return reconcile.After(recheck), nil
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: NodeName},
	}
	err = r.c.SubResource("binding").Create(ctx, pod, client.Body(binding))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // deleted, or bound already: the watch will tell
		return reconcile.Done, nil
	case err != nil:
		return reconcile.Retry(err)
	}
	// The event of an own write leads to no call, so the pod starts in this one.
	if err := r.c.Get(ctx, client.KeyOf(pod), pod); err != nil {
		return reconcile.Retry(ignoreNotFound(err))
	}
	if pod.Spec.NodeName != NodeName || pod.DeletionTimestamp != nil {
		return reconcile.After(recheck), nil
	}
	return r.run(ctx, pod)
}

// unbound returns why the claims of a pod do not let it be scheduled; empty if they do.
func (r *pods) unbound(ctx context.Context, pod *corev1.Pod) (string, error) {
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
		claim := &corev1.PersistentVolumeClaim{}
		err := r.c.Get(ctx, client.Key{Namespace: pod.Namespace, Name: name}, claim)
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("persistentvolumeclaim %q not found", name), nil
		case err != nil:
			return "", err
		case claim.Status.Phase == corev1.ClaimBound:
			continue
		}
		if err := r.selectNode(ctx, claim); err != nil {
			return "", err
		}
		return fmt.Sprintf("persistentvolumeclaim %q is not bound", name), nil
	}
	return "", nil
}

// selectNode tells the provisioner that a claim has its first consumer, if it waits for one.
func (r *pods) selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Annotations[simnode.SelectedNode] != "" {
		return nil
	}
	if class, err := classOf(ctx, r.c, claim); err != nil || class == nil || !simnode.WaitsForConsumer(class) {
		return err
	}
	return client.Modify(ctx, r.c, claim, func(claim *corev1.PersistentVolumeClaim) error {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, simnode.SelectedNode, NodeName)
		return nil
	})
}

// run starts the containers of a pod, and ends them when their time has come. Each of the two states is written, so
// that clients can see both.
func (r *pods) run(ctx context.Context, pod *corev1.Pod) (reconcile.Result, error) {
	plan, err := simnode.PlanOf(pod)
	if err != nil { // of an annotation; another annotation is an event
		return reconcile.Terminal(err)
	}
	missing, err := r.missing(ctx, pod)
	if err != nil {
		return reconcile.Retry(err)
	}
	for {
		var next time.Duration
		before := pod.ResourceVersion
		err := client.ModifyStatus(ctx, r.c, pod, func(p *corev1.Pod) error {
			next = plan.Advance(p, missing, time.Now())
			return nil
		})
		switch {
		case apierrors.IsNotFound(err):
			return reconcile.Done, nil
		case err != nil:
			return reconcile.Retry(err)
		case missing != "":
			return reconcile.After(recheck), nil
		case next > 0:
			return reconcile.After(next), nil
		case pod.ResourceVersion == before: // nothing more to do
			return reconcile.Done, nil
		}
	}
}

// missing returns the first ConfigMap or Secret that the pod needs and that does not exist; empty if there is none.
func (r *pods) missing(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.Status.Phase == corev1.PodRunning { // it has started with what it needs
		return "", nil
	}
	for _, ref := range simnode.References(pod) {
		obj := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: ref.Kind}}
		err := r.c.Live().Get(ctx, client.Key{Namespace: pod.Namespace, Name: ref.Name}, obj)
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("%s %q not found", ref.Kind, ref.Name), nil
		case err != nil:
			return "", err
		}
	}
	return "", nil
}

// end ends the containers of a deleted pod, and removes it.
func (r *pods) end(ctx context.Context, pod *corev1.Pod) error {
	if !simnode.IsFinished(pod) {
		err := client.ModifyStatus(ctx, r.c, pod, func(p *corev1.Pod) error {
			simnode.Terminate(p, simnode.Killed, time.Now())
			return nil
		})
		if err != nil {
			return ignoreNotFound(err)
		}
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil && *s == 0 {
		return nil // only finalizers keep it
	}
	return r.c.Delete(ctx, pod, client.Grace(0), client.SameUID(), client.IgnoreNotFound())
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
