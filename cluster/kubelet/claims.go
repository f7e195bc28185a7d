package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/simnode"
	"github.com/fairlead-io/fairlead/reconcile"
)

// claims is the controller that provisions a volume for each claim and binds the two, as the provisioner of the class
// and the volume controller of kube-controller-manager do. Both may work beside it. It has no state.
type claims struct{ c *client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *claims) Reconcile(ctx context.Context, claim *corev1.PersistentVolumeClaim) (reconcile.Result, error) {
	if !simnode.NeedsVolume(claim) {
		return reconcile.Done, nil
	}
	class, err := classOf(ctx, r.c, claim)
	switch {
	case err != nil:
		return reconcile.Retry(err)
	case class == nil && claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName == "":
		return reconcile.Done, nil // the user asks for a volume that exists
	case class == nil, simnode.WaitsForConsumer(class) && claim.Annotations[simnode.SelectedNode] == "":
		return reconcile.After(recheck), nil
	}
	return reconcile.Retry(r.bind(ctx, claim, class))
}

// classOf returns the class of a claim; nil if it has none or the class does not exist.
func classOf(
	ctx context.Context, c *client.Client, claim *corev1.PersistentVolumeClaim,
) (*storagev1.StorageClass, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, nil
	}
	class := &storagev1.StorageClass{}
	err := c.Live().Get(ctx, client.Key{Name: *claim.Spec.StorageClassName}, class)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return class, err
}

// bind creates the volume of a claim, and binds the claim to it.
func (r *claims) bind(
	ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) error {
	if err := r.c.Create(ctx, simnode.VolumeFor(claim, class)); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	err := client.Modify(ctx, r.c, claim, func(claim *corev1.PersistentVolumeClaim) error {
		simnode.BindClaim(claim)
		return nil
	})
	if err == nil {
		err = client.ModifyStatus(ctx, r.c, claim, func(claim *corev1.PersistentVolumeClaim) error {
			simnode.SetClaimStatus(claim)
			return nil
		})
	}
	return ignoreNotFound(err) // of a claim that was deleted meanwhile
}

// volumes is the controller that shows volumes as bound, and deletes those whose claims are gone. It has no state.
type volumes struct{ c *client.Client }

// Reconcile implements reconcile.Reconciler.
func (r *volumes) Reconcile(ctx context.Context, volume *corev1.PersistentVolume) (reconcile.Result, error) {
	ref := volume.Spec.ClaimRef
	if volume.DeletionTimestamp != nil || !simnode.IsProvisioned(volume) {
		return reconcile.Done, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	err := r.c.Get(ctx, client.Key{Namespace: ref.Namespace, Name: ref.Name}, claim)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Retry(err)
	}
	isClaimed := err == nil && claim.UID == ref.UID
	if !isClaimed && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return reconcile.Retry(r.c.Delete(ctx, volume, client.SameUID(), client.IgnoreNotFound()))
	}
	phase := corev1.VolumeReleased
	if isClaimed {
		phase = corev1.VolumeBound
	}
	err = client.ModifyStatus(ctx, r.c, volume, func(volume *corev1.PersistentVolume) error {
		volume.Status.Phase = phase
		return nil
	})
	return reconcile.Retry(ignoreNotFound(err))
}

// claimOf returns the claim of a volume.
func claimOf(volume *corev1.PersistentVolume) []reconcile.Key {
	if ref := volume.Spec.ClaimRef; ref != nil {
		return []reconcile.Key{{Namespace: ref.Namespace, Name: ref.Name}}
	}
	return nil
}

// volumeOf returns the volume of a claim.
func volumeOf(claim *corev1.PersistentVolumeClaim) []reconcile.Key {
	if name := claim.Spec.VolumeName; name != "" {
		return []reconcile.Key{{Name: name}}
	}
	return nil
}
