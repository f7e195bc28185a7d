package course

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// An Operation can be so large that the API server refuses any addition. The reason may be its request object,
// annotations of other clients, or the server's bookkeeping. A step that cannot be recorded is not done. Such an
// operation therefore ends, as failed unless all calls are done. Data that is not needed for the end is removed step by
// step until the end can be written (O1).

// Thinness says which parts of an operation are removed. Each level includes the levels before it.
type Thinness uint8

// The levels of Thinness.
const (
	Whole   Thinness = iota
	Brief            // no history, short messages
	Unowned          // no managed fields, which the server recreates; of ended calls only the outcome
	// only for the end: no request object; it is removed together with a request to cancel, the only form that the
	// validation rules allow
	Stripped
	Naked // no foreign labels and annotations
	Bones // only the outcome of calls
)

// String names the removed parts.
func (t Thinness) String() string {
	return [...]string{
		"nothing", "history and messages", "managed fields", "request object", "labels and annotations",
		"details of calls",
	}[t]
}

// Reset is the value of metadata.managedFields that makes the server recreate them.
const Reset = `[{}]`

const (
	briefMessage = 64             // bytes of a short message
	ownPrefix    = "fairlead.io/" // of labels and annotations that stay
)

// Apply removes the parts that need no separate request.
func (t Thinness) Apply(op *v1alpha1.Operation) {
	if t < Brief {
		return
	}
	s := &op.Status
	s.History = nil
	for i := range s.Conditions {
		s.Conditions[i].Message = short(s.Conditions[i].Message)
	}
	for i := range s.Webhooks {
		t.call(&s.Webhooks[i])
	}
	for i := range s.Compensations {
		t.call(&s.Compensations[i])
	}
	if s.Notification != nil {
		t.call(s.Notification)
	}
	if t >= Unowned {
		op.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
}

func (t Thinness) call(e *v1alpha1.WebhookCallStatus) {
	e.Message = short(e.Message)
	switch {
	case t >= Bones:
		*e = v1alpha1.WebhookCallStatus{WebhookID: e.WebhookID, State: e.State}
	case t >= Unowned && e.State.Terminal(): // only unfinished calls need these
		e.WebhookPollURL, e.AttemptID, e.IdempotencyKey, e.StartedAt, e.LastPollTimestamp = "", "", "", nil, nil
	}
}

func short(message string) string {
	if len(message) <= briefMessage {
		return message
	}
	return strings.ToValidUTF8(message[:briefMessage-len("…")], "") + "…"
}

// Patch returns the request that removes parts outside of the status, or nil.
func (t Thinness) Patch(op *v1alpha1.Operation) []byte {
	metadata := map[string]any{"managedFields": json.RawMessage(Reset)}
	body := map[string]any{"metadata": metadata}
	switch {
	case t == Stripped && op.Spec.RequestObject != nil:
		body["spec"] = map[string]any{"requestObject": nil, "cancelRequested": true}
	case t == Naked && len(op.Labels)+len(op.Annotations) > 0:
		metadata["labels"], metadata["annotations"] = foreign(op.Labels), foreign(op.Annotations)
	default:
		return nil
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return patch
}

// foreign returns a patch that removes keys with another prefix.
func foreign(all map[string]string) map[string]any {
	gone := make(map[string]any)
	for key := range all {
		if !strings.HasPrefix(key, ownPrefix) {
			gone[key] = nil
		}
	}
	return gone
}
