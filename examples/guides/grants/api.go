package grants

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/fairlead-io/fairlead/flow"
)

// Grant copies a Secret to the vault.
type Grant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GrantSpec   `json:"spec,omitempty"`
	Status            GrantStatus `json:"status,omitempty"`
}

// GrantSpec is the desired state of a Grant.
type GrantSpec struct {
	Secret string `json:"secret"` // name of the Secret, in the namespace of the Grant
}

// GrantStatus is the observed state of a Grant.
type GrantStatus struct {
	Conditions    []metav1.Condition `json:"conditions,omitempty"`
	SecretVersion string             `json:"secretVersion,omitempty"` // resourceVersion of the stored Secret
	Flow          *flow.Position     `json:"flow,omitempty"`          // the position of the fiber
}

// DeepCopyObject implements runtime.Object.
func (g *Grant) DeepCopyObject() runtime.Object {
	out := &Grant{TypeMeta: g.TypeMeta, Spec: g.Spec, Status: g.Status}
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(g.Status.Conditions)
	out.Status.Flow = g.Status.Flow.DeepCopy()
	return out
}

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(group, &Grant{})
	metav1.AddToGroupVersion(s, group)
	utilruntime.Must(corev1.AddToScheme(s))
	return s
}
