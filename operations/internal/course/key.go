package course

import (
	"bytes"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// NewAttempt returns the id for another try of a call.
func NewAttempt(op *v1alpha1.Operation, t record.Target) string {
	if FirstTry(op, t) {
		return FirstAttempt(op)
	}
	return uuid.Must(uuid.NewV7()).String()
}

// CallID returns the idempotency key of a call, which is the same on every try. It does not depend on the recorded key,
// so that a writer of the status cannot choose the key of another call.
func CallID(op *v1alpha1.Operation, t record.Target) string {
	return webhook.CallID(op.Namespace, op.EffectiveID(), t.ID, webhook.Purpose(t.Purpose))
}

// Unkeyed reports whether the key of a call that has begun is missing from the status.
func Unkeyed(e *v1alpha1.WebhookCallStatus) bool {
	return e != nil && e.AttemptID != "" && e.IdempotencyKey == ""
}

// Keys counts the recorded keys.
func Keys(s *v1alpha1.OperationStatus) (n int) {
	count := func(e *v1alpha1.WebhookCallStatus) {
		if e != nil && e.IdempotencyKey != "" {
			n++
		}
	}
	for i := range s.Webhooks {
		count(&s.Webhooks[i])
	}
	for i := range s.Compensations {
		count(&s.Compensations[i])
	}
	count(s.Notification)
	return n
}

// KeptKeys reports whether an answer of the API server has n keys. It usually avoids decoding: the status is the last
// part of an object, and a JSON string cannot contain the unescaped quotes around a field name. If the count differs,
// it decodes the answer.
func KeptKeys(answer []byte, n int) bool {
	if n == 0 {
		return true
	}
	if at := bytes.LastIndex(answer, []byte(`"status":{`)); at >= 0 &&
		bytes.Count(answer[at:], []byte(`"idempotencyKey":"`)) == n {
		return true
	}
	var op struct {
		Status v1alpha1.OperationStatus `json:"status"`
	}
	return json.Unmarshal(answer, &op) == nil && Keys(&op.Status) == n
}
