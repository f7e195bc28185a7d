package operations

import (
	"maps"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Query selects Operations for [Scheduler.Page] and [Scheduler.List]. Empty fields restrict nothing.
type Query struct {
	// AllNamespaces selects Operations in all namespaces, not only in that of the Scheduler.
	AllNamespaces bool
	// ResourceType restricts to one type of resource.
	ResourceType string
	// Type restricts to one type of operation, such as Delete.
	Type v1alpha1.OperationType
	// Category restricts to one category.
	Category string
	// CorrelationID restricts to one correlation ID.
	CorrelationID string
	// Phase restricts to one phase of the present request. A request that no executor has picked up yet is in progress.
	Phase v1alpha1.Phase
	// Related restricts to operations that touch this resource as their own or as a related one.
	Related Resource
	// Limit bounds the number of Operations on a page. The client filters by the criteria that the API server cannot
	// select, so pages may be short or empty. Default: that of package call.
	Limit int64
	// Continue is the token from the previous page.
	Continue string
}

// Matches reports whether the query selects an Operation.
func (q Query) Matches(op *v1alpha1.Operation) bool {
	related := v1alpha1.ResourceReference{ResourceType: q.Related.Type, ResourceID: q.Related.ID}
	return (q.ResourceType == "" || op.Spec.ResourceType == q.ResourceType) &&
		(q.Type == "" || op.Spec.OperationType == q.Type) &&
		(q.Category == "" || op.Spec.OperationCategory == q.Category) &&
		(q.CorrelationID == "" || op.Spec.CorrelationID == q.CorrelationID) &&
		(q.Phase == "" || phaseOf(op) == q.Phase) &&
		(q.Related == Resource{} || op.Touches(related))
}

// ParsePhase returns the phase with the given name. It ignores case, spaces and underscores: in_progress is In
// Progress.
func ParsePhase(name string) (phase v1alpha1.Phase, known bool) {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer(" ", "", "_", "").Replace(s)) }
	for _, phase := range []v1alpha1.Phase{v1alpha1.PhaseInProgress, v1alpha1.PhaseSuccess, v1alpha1.PhaseFailed} {
		if plain(string(phase)) == plain(name) {
			return phase, true
		}
	}
	return "", false
}

func phaseOf(op *v1alpha1.Operation) v1alpha1.Phase {
	if op.Terminal() {
		return op.Status.Phase
	}
	return v1alpha1.PhaseInProgress
}

// values returns the query parameters for the API server. The phase is selectable on the server only for ended
// requests.
func (q Query) values() url.Values {
	values := url.Values{}
	selector := fields.Set{
		"spec.resourceType": q.ResourceType, "spec.operationType": string(q.Type), "spec.operationCategory": q.Category,
		"spec.correlationID": q.CorrelationID,
	}
	if q.Phase.Terminal() {
		selector["status.phase"] = string(q.Phase)
	}
	maps.DeleteFunc(selector, func(_, value string) bool { return value == "" })
	if len(selector) > 0 {
		values.Set("fieldSelector", selector.AsSelector().String())
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.FormatInt(q.Limit, 10))
	}
	if q.Continue != "" {
		values.Set("continue", q.Continue)
	}
	return values
}
