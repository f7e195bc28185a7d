package controllers

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// collect is the garbage collector. It follows attemptToDeleteItem and attemptToOrphan of the real one.
func collect(w *world, o *object) decision {
	switch {
	case o.isDeleted && o.hasFinalizer(metav1.FinalizerOrphanDependents):
		for _, dependent := range w.dependents(o.uid) {
			if isOwnerOf(o, dependent) {
				return send(withOwners(dependent, without(dependent.owners, o.uid)))
			}
		}
		return send(withoutFinalizer(o, metav1.FinalizerOrphanDependents))
	case o.isDeleted && o.hasFinalizer(metav1.FinalizerDeleteDependents):
		for _, dependent := range w.dependents(o.uid) {
			if isOwnerOf(o, dependent) && blocks(dependent, o.uid) {
				return decision{} // dependents have keys of their own
			}
		}
		return send(withoutFinalizer(o, metav1.FinalizerDeleteDependents))
	case o.isDeleted:
		return decision{}
	}
	var solid, dangling, waiting []metav1.OwnerReference
	for _, ref := range o.owners {
		owner := w.byUID[ref.UID]
		gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
		s, isKnown := w.kinds[gk]
		switch {
		case owner != nil && isOwnerOf(owner, o):
			if owner.isDeleted && owner.hasFinalizer(metav1.FinalizerDeleteDependents) {
				waiting = append(waiting, ref)
			} else {
				solid = append(solid, ref)
			}
		case !isKnown:
			return send(discover(w, ref))
		case !s.isServed, s.isNamespaced && o.namespace == "": // the real collector tries again and again
			w.blocked[keyOf(ofGarbage, o)] = true
			return decision{}
		default:
			dangling = append(dangling, ref)
		}
	}
	switch {
	case len(solid) > 0 && len(dangling)+len(waiting) == 0, len(o.owners) == 0:
		return decision{}
	case len(solid) > 0:
		return send(withOwners(o, solid))
	case len(waiting) > 0 && len(w.dependents(o.uid)) > 0:
		for _, dependent := range w.dependents(o.uid) { // a circle would wait for itself
			if dependent.isDeleted && dependent.hasFinalizer(metav1.FinalizerDeleteDependents) && blocksAny(o) {
				return send(withOwners(o, unblocked(o.owners)))
			}
		}
		return send(remove(manager, o, metav1.DeletePropagationForeground, nil))
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case o.hasFinalizer(metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case o.hasFinalizer(metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return send(remove(manager, o, policy, nil))
}

// isOwnerOf reports whether an owner reference of an object means owner. An owner in another namespace is never meant.
func isOwnerOf(owner, o *object) bool {
	for _, ref := range o.owners {
		if ref.UID == owner.uid && ref.Name == owner.name && (owner.namespace == "" || owner.namespace == o.namespace) &&
			schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() == owner.res.GVK().GroupKind() {
			return true
		}
	}
	return false
}

// blocks reports whether an object has to be gone before its owner can be.
func blocks(o *object, owner types.UID) bool {
	for _, ref := range o.owners {
		if ref.UID == owner && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
			return true
		}
	}
	return false
}

func blocksAny(o *object) bool {
	for _, ref := range o.owners {
		if blocks(o, ref.UID) {
			return true
		}
	}
	return false
}

func unblocked(owners []metav1.OwnerReference) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, ref := range owners {
		ref.BlockOwnerDeletion = new(false)
		out = append(out, ref)
	}
	return out
}

func without(owners []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, ref := range owners {
		if ref.UID != uid {
			out = append(out, ref)
		}
	}
	return out
}

// discover returns the request that asks for the kinds of the API of an owner that no change has shown yet.
func discover(w *world, ref metav1.OwnerReference) *request {
	gv, _ := schema.ParseGroupVersion(ref.APIVersion) // the server refuses a malformed one
	path := "/apis/" + gv.Group + "/" + gv.Version
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	return &request{agent: manager, method: http.MethodGet, path: path, isRead: true, then: func(code int, body []byte) {
		var list metav1.APIResourceList
		if code != http.StatusNotFound && (code != http.StatusOK || json.Unmarshal(body, &list) != nil) {
			return
		}
		w.kinds[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}] = scope{}
		for _, r := range list.APIResources {
			gk := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			if s := w.kinds[gk]; !s.isServed {
				w.kinds[gk] = scope{true, r.Namespaced}
			}
		}
	}}
}
