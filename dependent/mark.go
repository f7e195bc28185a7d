package dependent

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Marks of a child, besides the controller reference to its primary. Some children cannot have that reference: those in
// another namespace, and cluster-scoped children of a namespaced primary. They have the label and the annotation of the
// owner instead.
const (
	AnnotationNode  = "fairlead.io/dependent" // CONTROLLER/NODE
	labelOwner      = "fairlead.io/owner"     // the uid of the primary
	annotationOwner = "fairlead.io/owner"     // KIND.GROUP NAMESPACE/NAME of the primary
)

// marks sets and reads the marks of the children of one primary.
type marks struct {
	controller string
	kind       schema.GroupVersionKind // of the primary
	primary    client.Object
}

// set adds the marks of a node to a desired object.
func (m *marks) set(n *node, obj client.Object) error {
	if other := metav1.GetControllerOfNoCopy(obj); other != nil && other.UID != m.primary.GetUID() {
		return fmt.Errorf("%w: it has the controller %s %s", errUnfit, other.Kind, other.Name)
	}
	setMark(obj.GetAnnotations, obj.SetAnnotations, AnnotationNode, m.controller+"/"+n.name)
	if m.holds(obj) {
		refs := obj.GetOwnerReferences()
		kept := refs[:0:0]
		for _, r := range refs {
			if r.UID != m.primary.GetUID() {
				kept = append(kept, r)
			}
		}
		obj.SetOwnerReferences(append(kept, *metav1.NewControllerRef(m.primary, m.kind)))
		return nil
	}
	setMark(obj.GetLabels, obj.SetLabels, labelOwner, string(m.primary.GetUID()))
	setMark(obj.GetAnnotations, obj.SetAnnotations, annotationOwner,
		m.kind.GroupKind().String()+" "+client.KeyOf(m.primary).String())
	return nil
}

// setMark sets one entry of the labels or annotations of an object, in a copy.
func setMark(get func() map[string]string, set func(map[string]string), name, value string) {
	all := map[string]string{name: value}
	for k, v := range get() {
		if k != name {
			all[k] = v
		}
	}
	set(all)
}

// holds reports whether obj can have an owner reference to the primary.
func (m *marks) holds(obj client.Object) bool {
	ns := m.primary.GetNamespace()
	return ns == "" || ns == obj.GetNamespace()
}

// ours reports whether an object has the marks of a child of the primary, and of which node. The node may be another
// one with a child of the same name.
func (m *marks) ours(obj client.Object) (node string, ok bool) {
	if !m.isOwner(obj) {
		return "", false
	}
	controller, node, ok := strings.Cut(obj.GetAnnotations()[AnnotationNode], "/")
	return node, ok && controller == m.controller
}

// isOwner reports whether the primary owns an object. The object may belong to other code that has the same primary.
func (m *marks) isOwner(obj client.Object) bool {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil {
		return owner.UID == m.primary.GetUID()
	}
	return obj.GetLabels()[labelOwner] == string(m.primary.GetUID())
}

// owned returns an error if another controller owns an object. Such an object is never adopted.
func (m *marks) owned(obj client.Object) error {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil && owner.UID != m.primary.GetUID() {
		return fmt.Errorf("%w: %w: %s %s", ErrForeign, reconcile.ErrOwned, owner.Kind, owner.Name)
	}
	if other := obj.GetLabels()[labelOwner]; other != "" && other != string(m.primary.GetUID()) {
		return fmt.Errorf("%w: its owner is %s", ErrForeign, obj.GetAnnotations()[annotationOwner])
	}
	return nil
}

// mayTake returns an error if an object with the name of a child must not be written. allowed reports that the option
// Adopt allows it, or that the object was a child before another client removed the marks.
func (m *marks) mayTake(is client.Object, allowed bool) error {
	if m.isOwner(is) {
		return nil
	}
	if err := m.owned(is); err != nil {
		return err
	}
	if allowed {
		return nil
	}
	return ErrForeign
}

// refuseDeleted returns an error for an object that is being deleted and does not belong to the primary. No watch
// reports its end to the primary, so the controller must retry.
func (m *marks) refuseDeleted(is client.Object) error {
	if m.isOwner(is) {
		return nil
	}
	return fmt.Errorf("%w, and is being deleted", ErrForeign)
}

// primaryElsewhere returns the primary of a child without an owner reference.
func primaryElsewhere[C any, PC client.ObjectOf[C]](obj *C) []reconcile.Key {
	k, err := ownerOf(PC(obj))
	if err != nil {
		return nil
	}
	return []reconcile.Key{k}
}

var errNoOwner = errors.New("no owner is named")

func ownerOf(obj client.Object) (client.Key, error) {
	_, key, ok := strings.Cut(obj.GetAnnotations()[annotationOwner], " ")
	if !ok {
		return client.Key{}, errNoOwner
	}
	if ns, name, ok := strings.Cut(key, "/"); ok {
		return client.Key{Namespace: ns, Name: name}, nil
	}
	return client.Key{Name: key}, nil
}
