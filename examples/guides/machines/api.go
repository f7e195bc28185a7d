package machines

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/flow"
)

// Machine is a machine of a cloud.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            MachineStatus `json:"status,omitempty"`
}

// MachineStatus is the observed state of a Machine.
type MachineStatus struct {
	ReadyGeneration int64          `json:"readyGeneration,omitempty"`
	Allocated       alloc.Slots    `json:"allocated,omitempty"` // the values of alloc.Once
	Flow            *flow.Position `json:"flow,omitempty"`      // the position of the fiber
}

// DeepCopyObject implements runtime.Object.
func (m *Machine) DeepCopyObject() runtime.Object {
	out := &Machine{TypeMeta: m.TypeMeta, Status: m.Status}
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Flow = m.Status.Flow.DeepCopy()
	out.Status.Allocated = m.Status.Allocated.DeepCopy()
	return out
}

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(group, &Machine{})
	metav1.AddToGroupVersion(s, group)
	return s
}
