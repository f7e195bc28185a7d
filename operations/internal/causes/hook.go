package causes

import (
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// OperationObject names an Operation.
func OperationObject(namespace, name string) *why.Object {
	return &why.Object{
		Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindOperation, Namespace: namespace, Name: name,
	}
}

// WebhookObject names a Webhook.
func WebhookObject(namespace, name string) *why.Object {
	return &why.Object{Group: v1alpha1.GroupVersion.Group, Kind: v1alpha1.KindWebhook, Namespace: namespace, Name: name}
}

// Missing returns the cause for a Webhook that does not exist.
func Missing(namespace, hook string, since time.Time) why.Cause {
	return why.Cause{
		Type: why.WebhookMissing, Message: "webhook " + hook + " does not exist in namespace " + namespace, Since: since,
		Evidence: map[string]string{"webhook": hook}, About: WebhookObject(namespace, hook),
		Advice: "Create the Webhook, and the operation continues automatically, or cancel the operation. If the namespace " +
			"is being " +
			"deleted, no Webhook can be created in it: cancel the operation, or wait until the namespace is gone.",
	}
}

// NotReleased returns the cause for a Webhook whose Secret or service account is not released. lacks describes the
// missing release.
func NotReleased(namespace, hook, lacks string, since time.Time) why.Cause {
	return why.Cause{
		Type: why.NotReleased, Message: lacks, Since: since, Evidence: map[string]string{"webhook": hook},
		About: WebhookObject(namespace, hook),
		Advice: "Its owner has to permit the use: for a Secret with the label " + v1alpha1.LabelWebhookCredentials +
			"=true, for a service account with the annotation " + v1alpha1.AnnotationWebhookAudiences + ".",
	}
}

// Quarantined returns the cause for a Webhook that is not used because it has crashed the controller. said holds
// further information.
func Quarantined(namespace, hook, said string, since time.Time) why.Cause {
	c := why.Cause{
		Type: why.Quarantined, Message: "webhook " + hook + " is quarantined, because evaluating it killed the controller",
		Since:    since,
		Evidence: map[string]string{"webhook": hook}, About: WebhookObject(namespace, hook),
		Advice: "Change its templates and expressions. The Webhook is used again after that.",
	}
	if said != "" {
		c.Evidence["error"] = said
	}
	return c
}

// Circuit is the state of a breaker.
type Circuit struct {
	State        string
	Since, Until time.Time
	Failures     int    // consecutive
	Last         string // error of the last failure
}

// CircuitOpen returns the cause for a Webhook whose breaker is open or half-open.
func CircuitOpen(namespace, hook string, s Circuit) why.Cause {
	c := why.Cause{
		Type: why.CircuitOpen, Since: s.Since, Until: s.Until, About: WebhookObject(namespace, hook),
		Message:  "webhook " + hook + " failed so often that calls are suspended for a while",
		Evidence: map[string]string{"webhook": hook, "state": s.State},
		Advice:   "Check why the receiver fails. The next trial call decides whether the circuit closes.",
	}
	if s.State == string(v1alpha1.BreakerHalfOpen) {
		c.Message = "webhook " + hook +
			" failed so often that only one trial call is made, which decides whether the circuit closes"
	}
	if s.Failures > 0 {
		c.Evidence["failures"] = strconv.Itoa(s.Failures)
	}
	if s.Last != "" {
		c.Evidence["error"] = s.Last
	}
	return c
}

// Busy returns the cause for a Webhook whose own bound is used up: "rate" or "concurrency".
func Busy(namespace, hook, bound string, most, waiting int, since, until time.Time) why.Cause {
	words := "its limit on concurrent calls, concurrency " + strconv.Itoa(most)
	if bound == "rate" {
		words = "its limit on calls per second, ratePerSecond " + strconv.Itoa(most)
	}
	return why.Cause{
		Type: why.RateLimited, Message: "webhook " + hook + " is used up to " + words, Since: since, Until: until,
		Evidence: map[string]string{
			"webhook": hook, "bound": bound, "most": strconv.Itoa(most), "waiting": strconv.Itoa(waiting),
		},
		About:  WebhookObject(namespace, hook),
		Advice: "It continues when its turn comes. Raise the limit of the Webhook if its receiver can take more.",
	}
}

// Held returns the cause for an operation that holds one of the held slots of a Webhook.
func Held(namespace, hook, operation string, since time.Time, held int) why.Cause {
	return why.Cause{
		Type: why.QueuedBehind, Depth: 1, Since: since, About: OperationObject(namespace, operation),
		Message: "operation " + namespace + "/" + operation + " has held a place of webhook " + hook + " since " +
			stamp(since),
		Evidence: map[string]string{
			"webhook": hook, "bound": "concurrency", "holder": namespace + "/" + operation, "held": strconv.Itoa(held),
		},
		Advice: "Check why its call takes so long. The place is free again when the call ends, at the latest after " +
			"requestTimeout.",
	}
}

// Share returns the cause for a namespace that has used up its share of a resource.
func Share(namespace, of string, since time.Time) why.Cause {
	return rateLimited(namespace, "namespace "+namespace+" has used up its share of "+of, of, since)
}

func rateLimited(namespace, message, share string, since time.Time) why.Cause {
	c := why.Cause{
		Type: why.RateLimited, Message: message, Since: since, Evidence: map[string]string{"namespace": namespace},
		Advice: "It continues when its turn comes. Start less work at once in the namespace, or raise --namespace-writes, " +
			"--namespace-calls or --max-calls of the controller.",
	}
	if share != "" {
		c.Evidence["share"] = share
	}
	return c
}

// Outdated returns the cause for an outdated CustomResourceDefinition.
func Outdated(message string, since time.Time) why.Cause {
	return why.Cause{
		Type: OutdatedCRD, Message: message, Since: since, Evidence: map[string]string{"crd": "operations.fairlead.io"},
		Advice: "Install the definitions of this version: fairlead crds | kubectl apply --server-side -f -",
	}
}
