// Package controller has the reconciler of the example, in the form that controller-runtime expects.
package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	squadsv1 "github.com/fairlead-io/fairlead/examples/controller-runtime/api/v1"
)

// owner is the index of pods by the UID of the squad that controls them.
const owner = ".metadata.controller"

// SquadReconciler creates and deletes the pods of squads. It counts pods in the cache, so it needs a cache that shows
// its own writes: with a stale cache it would create the same pods twice.
type SquadReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// +kubebuilder:rbac:groups=squads.example.com,resources=squads,verbs=get;list;watch
// +kubebuilder:rbac:groups=squads.example.com,resources=squads/status,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete

// Reconcile implements reconcile.Reconciler.
func (r *SquadReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var squad squadsv1.Squad
	if err := r.Get(ctx, req.NamespacedName, &squad); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !squad.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	members, err := r.members(ctx, &squad)
	if err != nil {
		return ctrl.Result{}, err
	}
	for n := len(members); n < int(squad.Spec.Size); n++ {
		if err := r.recruit(ctx, &squad); err != nil {
			return ctrl.Result{}, err
		}
	}
	for n := int(squad.Spec.Size); n < len(members); n++ {
		if err := r.Delete(ctx, &members[n], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	if members, err = r.members(ctx, &squad); err != nil { // includes the pods created and deleted above
		return ctrl.Result{}, err
	}
	status := squadsv1.SquadStatus{ObservedGeneration: squad.Generation, Members: int32(len(members))}
	if squad.Status == status {
		return ctrl.Result{}, nil
	}
	squad.Status = status
	return ctrl.Result{}, r.Status().Update(ctx, &squad)
}

func (r *SquadReconciler) members(ctx context.Context, squad *squadsv1.Squad) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.List(ctx, &pods, client.InNamespace(squad.Namespace), client.MatchingFields{owner: string(squad.UID)})
	return pods.Items, err
}

func (r *SquadReconciler) recruit(ctx context.Context, squad *squadsv1.Squad) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: squad.Name + "-", Namespace: squad.Namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "member", Image: squad.Spec.Image}}},
	}
	if err := ctrl.SetControllerReference(squad, pod, r.Scheme); err != nil {
		return err
	}
	return r.Create(ctx, pod)
}

// SetupWithManager registers the reconciler with a manager.
func (r *SquadReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, owner, func(pod client.Object) []string {
		if by := metav1.GetControllerOf(pod); by != nil {
			return []string{string(by.UID)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&squadsv1.Squad{}).
		Owns(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}
