package operationbed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// App returns the resource of type app with this id.
func App(id any) operations.Resource { return operations.Resource{Type: "app", ID: fmt.Sprint(id)} }

// ResourceOf returns the resource of an Operation.
func ResourceOf(op *v1alpha1.Operation) operations.Resource {
	return operations.Resource{Type: op.Spec.ResourceType, ID: op.Spec.ResourceID}
}

// KeysOf returns the idempotency keys in the status of an Operation.
func KeysOf(op *v1alpha1.Operation) (all []string) {
	for _, e := range append(op.Status.Webhooks, op.Status.Compensations...) {
		all = append(all, e.IdempotencyKey)
	}
	if n := op.Status.Notification; n != nil {
		all = append(all, n.IdempotencyKey)
	}
	return all
}

// Token returns the token of a callback URL.
func Token(callbackURL string) string { return callbackURL[strings.LastIndex(callbackURL, "/")+1:] }

// CallbackHook configures a Webhook that reports its outcome by a callback.
func CallbackHook(s *v1alpha1.WebhookSpec) {
	s.Mode = v1alpha1.ModeAsyncCallback
	s.Request.Body = new(`{"callback": "{{.CallbackURL}}"}`)
}

// CallbackIn returns the callback URL in a request of a [CallbackHook].
func CallbackIn(r *http.Request) string {
	var body struct{ Callback string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	return body.Callback
}

// Warnings is an executor.Recorder that records warnings.
type Warnings struct {
	mu  sync.Mutex
	all []string
}

// Operation implements executor.Recorder.
func (w *Warnings) Operation(_ *v1alpha1.Operation, warning bool, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if warning {
		w.all = append(w.all, reason+": "+message)
	}
}

// Told returns the warnings, oldest first, each as "reason: message".
func (w *Warnings) Told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}
