package controllers

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

// claimProtection keeps a claim that a pod uses, and volumeProtection a bound volume.
const (
	claimProtection  = "kubernetes.io/pvc-protection"
	volumeProtection = "kubernetes.io/pv-protection"
)

// bindClaim gives a claim a volume, as the volume controller and a provisioner do, and protects it while a pod uses it.
func bindClaim(w *world, o *object) decision {
	claim := as[corev1.PersistentVolumeClaim](o)
	if o.isDeleted {
		if o.hasFinalizer(claimProtection) && !isUsed(w, claim) {
			return send(withoutFinalizer(o, claimProtection))
		}
		return decision{}
	}
	if !o.hasFinalizer(claimProtection) {
		return send(withFinalizer(o, claimProtection))
	}
	if !simnode.NeedsVolume(claim) {
		return decision{}
	}
	if claim.Spec.StorageClassName == nil {
		if name := defaultClass(w); name != "" {
			return send(patch(manager, o, map[string]any{"spec": map[string]any{"storageClassName": name}}))
		}
		return pending(o, claim)
	}
	class := classOf(w, claim)
	if class == nil || simnode.WaitsForConsumer(class) && claim.Annotations[simnode.SelectedNode] == "" {
		return pending(o, claim)
	}
	next := claim.DeepCopy()
	if claim.Spec.VolumeName != "" {
		simnode.SetClaimStatus(next)
		return send(update(manager, o, "status", next))
	}
	simnode.BindClaim(next)
	bind := update(manager, o, "", next)
	if w.get(volumes, "", simnode.VolumeName(claim)) != nil {
		return send(bind)
	}
	volume := simnode.VolumeFor(claim, class)
	volume.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	volume.Finalizers = []string{volumeProtection}
	return send(create(manager, volumes, "", volume), bind)
}

// pending shows that a claim waits, unless the API server has done so.
func pending(o *object, claim *corev1.PersistentVolumeClaim) decision {
	if claim.Status.Phase != "" {
		return decision{}
	}
	next := claim.DeepCopy()
	next.Status.Phase = corev1.ClaimPending
	return send(update(manager, o, "status", next))
}

// defaultClass returns the name of the newest default StorageClass; empty if there is none.
func defaultClass(w *world) string {
	var newest *storagev1.StorageClass
	for _, o := range w.tables[classes] {
		class := as[storagev1.StorageClass](o)
		if class.Annotations[simnode.IsDefaultClass] == "true" &&
			(newest == nil || class.CreationTimestamp.After(newest.CreationTimestamp.Time)) {
			newest = class
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Name
}

func isUsed(w *world, claim *corev1.PersistentVolumeClaim) bool {
	for _, o := range w.all(pods, claim.Namespace) {
		pod := as[corev1.Pod](o)
		if simnode.IsFinished(pod) && !o.isDeleted {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
				return true
			}
		}
	}
	return false
}

func withFinalizer(o *object, name string) *request {
	all := []any{}
	for _, f := range o.finalizers {
		all = append(all, f)
	}
	return patch(manager, o, map[string]any{"metadata": map[string]any{"finalizers": append(all, name)}})
}

// reclaimVolume shows a volume as bound, and deletes it once its claim is gone.
func reclaimVolume(w *world, o *object) decision {
	volume := as[corev1.PersistentVolume](o)
	if !simnode.IsProvisioned(volume) {
		return decision{}
	}
	claim := w.get(claims, volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name)
	isClaimed := claim != nil && claim.uid == volume.Spec.ClaimRef.UID
	if o.isDeleted {
		if o.hasFinalizer(volumeProtection) && !isClaimed {
			return send(withoutFinalizer(o, volumeProtection))
		}
		return decision{}
	}
	if !isClaimed && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return send(remove(manager, o, "", nil))
	}
	next := volume.DeepCopy()
	next.Status.Phase = corev1.VolumeReleased
	if isClaimed {
		next.Status.Phase = corev1.VolumeBound
	}
	if next.Status.Phase == volume.Status.Phase {
		return decision{}
	}
	return send(update(manager, o, "status", next))
}
