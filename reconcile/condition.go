package reconcile

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
)

// SetCondition sets a condition of obj, with the generation of obj as the observed one. It reports whether anything
// changed. The transition time changes only with the status. If obj or conditions is nil, SetCondition does nothing.
func SetCondition(obj client.Object, conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus,
	reason, message string,
) bool {
	if isNil(obj) || conditions == nil {
		return false
	}
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: obj.GetGeneration(),
	})
}
