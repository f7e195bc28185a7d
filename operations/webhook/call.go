package webhook

import (
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"
)

// Call is the part that differs between calls of an endpoint.
type Call struct {
	// ID is sent as webhook-id and Idempotency-Key. It is the same for every try; see CallID.
	ID            string
	CorrelationID string // empty: no correlation header
	Data          Data
	// After is the span of the previous try or poll ([Result.Span]). The span of this one links to it. Default: no
	// link.
	After trace.SpanContext
}

// Fields are the fields of an Operation's spec by JSON name.
type Fields = map[string]any

// Data is the input of templates. It is never modified.
type Data struct {
	// .Resource: any JSON value, as json.RawMessage, as maps and lists, or as a struct with JSON names
	Resource    any
	TenantID    string            // .TenantID
	Headers     map[string]string // .Headers
	Operation   func() Fields     // .Operation: called while a request with a template is rendered; nil: none
	CallbackURL string            // .CallbackURL; it contains a token, so it is masked like a secret
	Outcome     *Outcome          // .Outcome: for compensation and notification only
}

// Outcome is the outcome of the operation for compensations and notifications, as .Outcome.phase, .reason and .message.
type Outcome struct {
	Phase, Reason, Message string
}

// Purpose is the role of a call within its operation.
type Purpose string

// The purposes of calls.
const (
	Main       Purpose = ""
	Compensate Purpose = "compensate"
	Notify     Purpose = "notify"
)

// CallID returns the ID of a call: <namespace>.<operationID>.<webhookID>, with .compensate or .notify for those
// purposes. Neither a namespace nor an operation id contains a dot, so IDs are unique.
func CallID(namespace, operationID, webhookID string, purpose Purpose) string {
	id := namespace + "." + operationID + "." + webhookID
	if purpose != Main {
		id += "." + string(purpose)
	}
	return id
}

func (c Call) validate() error {
	if c.ID == "" || len(c.ID) > 1024 || !httpguts.ValidHeaderFieldValue(c.ID) {
		return fieldError("spec.operationID", "cannot be sent in a header: empty, too long or with control characters")
	}
	if len(c.CorrelationID) > maxValue || !httpguts.ValidHeaderFieldValue(c.CorrelationID) {
		return fieldError("spec.correlationID", "cannot be sent in a header: too long or with control characters")
	}
	return nil
}
