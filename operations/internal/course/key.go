package course

import (
	"bytes"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Idempotency keys. A call has the key with which it was begun, whatever version goes on with it. Versions that knew no
// namespaces in keys have recorded neither a key nor an attempt of ours: their attempts are random UUIDs (version 4),
// ours are not. So both an entry that they have begun and one of ours whose key they have dropped, since they write
// whole statuses for callbacks, are known for what they are during a rolling update.

// NewAttempt returns the id of another try of a call.
func NewAttempt(op *v1alpha1.Operation, t record.Target) string {
	switch {
	case FirstTry(op, t):
		return FirstAttempt(op)
	case keyless(record.Entry(&op.Status, t)):
		return uuid.NewString()
	}
	return uuid.Must(uuid.NewV7()).String()
}

// keyless tells whether a call was begun with a key that has no namespace.
func keyless(e *v1alpha1.WebhookCallStatus) bool {
	if e == nil || e.AttemptID == "" || e.IdempotencyKey != "" {
		return false
	}
	id, err := uuid.Parse(e.AttemptID)
	return err != nil || id.Version() == 4
}

// CallID returns the idempotency key of a call: the same on every try. What is recorded says of which kind it is, and
// not what it is: who may write a status must not choose the key of somebody else's call.
func CallID(op *v1alpha1.Operation, t record.Target) string {
	if !keyless(record.Entry(&op.Status, t)) {
		return webhook.CallID(op.Namespace, op.EffectiveID(), t.ID, webhook.Purpose(t.Purpose))
	}
	id := op.EffectiveID() + "." + t.ID
	if t.Purpose != record.Main {
		id += "." + string(t.Purpose)
	}
	return id
}

// Unkeyed tells whether a call that was begun with a key of ours has lost it.
func Unkeyed(e *v1alpha1.WebhookCallStatus) bool {
	return e != nil && e.AttemptID != "" && e.IdempotencyKey == "" && !keyless(e)
}

// Keys counts the keys that are recorded.
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

// KeptKeys tells whether an answer of the API server has n keys. It need not be decoded for that: the status is the
// last part of an object, and the quotes around the name of a field are not to be found within a string. Where that
// does not hold it is decoded after all.
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
