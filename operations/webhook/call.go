package webhook

import (
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/http/httpguts"
)

// Call is what differs from one call of an endpoint to the next.
type Call struct {
	// ID is sent as webhook-id and Idempotency-Key: the same on every try, see CallID.
	ID            string
	CorrelationID string // empty: no correlation header
	Data          Data
	// After is the span of the try or poll before this one ([Result.Span]), to which the span of this one links. Default:
	// it links to none.
	After trace.SpanContext
}

// Fields are those of an Operation's spec under their JSON names.
type Fields = map[string]any

// Data is what templates see. It is only read.
type Data struct {
	// .Resource: any JSON value, as json.RawMessage, as maps and lists, or as a struct with JSON names
	Resource    any
	TenantID    string            // .TenantID
	Headers     map[string]string // .Headers
	Operation   func() Fields     // .Operation: called while a request is made, if there is a template; nil: none
	CallbackURL string            // .CallbackURL; it holds a token, so it is masked like a secret
	Outcome     *Outcome          // .Outcome: for compensation and notification only
}

// Outcome is what compensations and notifications are told of the operation, as .Outcome.phase, .reason and .message.
type Outcome struct {
	Phase, Reason, Message string
}

// Purpose of a call within its operation.
type Purpose string

// The purposes.
const (
	Main       Purpose = ""
	Compensate Purpose = "compensate"
	Notify     Purpose = "notify"
)

// CallID is the ID of a call: <namespace>.<operationID>.<webhookID>, with .compensate or .notify for those calls.
// Neither a namespace nor the id of an operation has a dot, so no two calls share one.
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
