package simnode

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// IsDefaultClass is the annotation of the default StorageClass.
	IsDefaultClass = "storageclass.kubernetes.io/is-default-class"
	// SelectedNode is the annotation of a claim that has its first consumer.
	SelectedNode = "volume.kubernetes.io/selected-node"

	provisionedBy = "pv.kubernetes.io/provisioned-by"
	bindCompleted = "pv.kubernetes.io/bind-completed"
)

// VolumeName returns the name of the volume that is provisioned for a claim.
func VolumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

// NeedsVolume reports whether a volume is to be provisioned for a claim, as far as the claim itself decides.
func NeedsVolume(claim *corev1.PersistentVolumeClaim) bool {
	if claim.DeletionTimestamp != nil || claim.Status.Phase == corev1.ClaimBound ||
		claim.Status.Phase == corev1.ClaimLost || claim.Spec.Selector != nil {
		return false
	}
	return claim.Spec.VolumeName == "" || claim.Spec.VolumeName == VolumeName(claim) // else a volume of the user
}

// WaitsForConsumer reports whether a class provisions a volume only for a claim with a consumer.
func WaitsForConsumer(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// VolumeFor returns the volume that a class provisions for a claim.
func VolumeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	reclaim, name := corev1.PersistentVolumeReclaimDelete, VolumeName(claim)
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: class.Provisioner}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
			StorageClassName: class.Name, PersistentVolumeReclaimPolicy: reclaim, MountOptions: class.MountOptions,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Provisioner, VolumeHandle: name},
			},
		},
	}
}

// IsProvisioned reports whether a volume is one of [VolumeFor].
func IsProvisioned(volume *corev1.PersistentVolume) bool {
	return volume.Spec.ClaimRef != nil && volume.Spec.CSI != nil && volume.Spec.CSI.Driver == Provisioner
}

// BindClaim changes a claim, but not its status, to the one that is bound to its provisioned volume.
func BindClaim(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.VolumeName = VolumeName(claim)
	metav1.SetMetaDataAnnotation(&claim.ObjectMeta, bindCompleted, "yes")
}

// SetClaimStatus makes the status of a claim that of a bound one.
func SetClaimStatus(claim *corev1.PersistentVolumeClaim) {
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
	claim.Status.AccessModes = claim.Spec.AccessModes
}
