package controllerruntime

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// warnOfTransform logs that a transform of Secrets leaves their data in memory, unless Drop names fields of Secrets. It
// ignores DefaultTransform, which is not about secret data.
func (o *Options) warnOfTransform(opts cache.Options) {
	secret := corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	if len(o.Drop[secret]) > 0 || len(o.Drop[schema.GroupKind{}]) > 0 {
		return
	}
	for obj, by := range opts.ByObject {
		if _, metadata := obj.(*metav1.PartialObjectMetadata); metadata || !transforms(by) || kindOf(obj, opts) != secret {
			continue
		}
		log.Log.WithName("fairlead").Info("the Transform of Secrets changes what readers see, and their data stays in " +
			"memory; " +
			"Drop of controllerruntime.Options removes fields before they are stored, and Keep excepts objects: " +
			`controllerruntime.Options{Drop: map[schema.GroupKind][]string{{Kind: "Secret"}: {"data"}}, Keep: …}`)
		return
	}
}

// transforms reports whether the settings of a kind have a transform.
func transforms(by cache.ByObject) bool {
	if by.Transform != nil {
		return true
	}
	for _, in := range by.Namespaces {
		if in.Transform != nil {
			return true
		}
	}
	return false
}

// kindOf returns the kind of an object; the zero kind if the scheme does not know it.
func kindOf(obj client.Object, opts cache.Options) schema.GroupKind {
	gvk, err := apiutil.GVKForObject(obj, opts.Scheme)
	if err != nil {
		return schema.GroupKind{}
	}
	return gvk.GroupKind()
}
