package course

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Too large. An Operation can be so large that the API server does not store another word of it: by its request object,
// by annotations of others, by the bookkeeping of the server. What cannot be recorded is not done, so such an operation
// ends, as failed unless all was done; and what is not needed for that gives way, one after the other, until the end
// can be written (O1).

// Thinness is how much of an operation has given way. Each one includes those before it.
type Thinness uint8

// What gives way, each after what is before it.
const (
	Whole   Thinness = iota
	Brief            // no history, short messages
	Unowned          // no managed fields, which the server begins anew; of calls that are over only how they ended
	// at the end only: no request object, which is taken away with a request to cancel, since the rules allow that alone
	Stripped
	Naked // no labels and annotations of others
	Bones // of calls nothing but their outcome
)

// String says what gives way.
func (t Thinness) String() string {
	return [...]string{
		"nothing", "history and messages", "managed fields", "request object", "labels and annotations",
		"details of calls",
	}[t]
}

// Reset is what metadata.managedFields are replaced by for the server to begin them anew.
const Reset = `[{}]`

const (
	briefMessage = 64             // bytes of a message that is short
	ownPrefix    = "fairlead.io/" // of labels and annotations that stay
)

// Apply takes from an operation what gives way without a request of its own.
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
	case t >= Unowned && e.State.Terminal(): // what only those need that go on
		e.WebhookPollURL, e.AttemptID, e.IdempotencyKey, e.StartedAt, e.LastPollTimestamp = "", "", "", nil, nil
	}
}

func short(message string) string {
	if len(message) <= briefMessage {
		return message
	}
	return strings.ToValidUTF8(message[:briefMessage-len("…")], "") + "…"
}

// Patch is the request that takes away what is not part of the status; nil if there is nothing.
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

// foreign is the patch that removes what is not ours.
func foreign(all map[string]string) map[string]any {
	gone := make(map[string]any)
	for key := range all {
		if !strings.HasPrefix(key, ownPrefix) {
			gone[key] = nil
		}
	}
	return gone
}
