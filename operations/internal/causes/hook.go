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
		Advice: "Make the Webhook: the operation goes on by itself then. Or cancel the operation. If the namespace is being " +
			"deleted, no Webhook can be made in it: cancel the operation, or wait for the end of the namespace.",
	}
}

// NotReleased returns the cause for a Webhook whose Secret or service account is not released. lacks describes the
// missing release.
func NotReleased(namespace, hook, lacks string, since time.Time) why.Cause {
	return why.Cause{
		Type: why.NotReleased, Message: lacks, Since: since, Evidence: map[string]string{"webhook": hook},
		About: WebhookObject(namespace, hook),
		Advice: "Its owner has to release it: a Secret by the label " + v1alpha1.LabelWebhookCredentials +
			"=true, a service account by its annotation " + v1alpha1.AnnotationWebhookAudiences + ".",
	}
}

// Quarantined returns the cause for a Webhook that is not used because it has crashed the controller. said holds
// further information.
func Quarantined(namespace, hook, said string, since time.Time) why.Cause {
	c := why.Cause{
		Type: why.Quarantined, Message: "webhook " + hook + " is quarantined, since it has killed the controller", Since: since,
		Evidence: map[string]string{"webhook": hook}, About: WebhookObject(namespace, hook),
		Advice: "Change its templates and expressions: it is used again then.",
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
		Message:  "webhook " + hook + " has failed so often that no call of it is made for a while",
		Evidence: map[string]string{"webhook": hook, "state": s.State},
		Advice:   "See why the receiver fails: the first call after that decides whether the others go on.",
	}
	if s.State == string(v1alpha1.BreakerHalfOpen) {
		c.Message = "webhook " + hook + " has failed so often that one call is made, which decides about the others"
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
	words := "its bound on calls at a time, concurrency " + strconv.Itoa(most)
	if bound == "rate" {
		words = "its bound on calls per second, ratePerSecond " + strconv.Itoa(most)
	}
	return why.Cause{
		Type: why.RateLimited, Message: "webhook " + hook + " is used up to " + words, Since: since, Until: until,
		Evidence: map[string]string{
			"webhook": hook, "bound": bound, "most": strconv.Itoa(most), "waiting": strconv.Itoa(waiting),
		},
		About:  WebhookObject(namespace, hook),
		Advice: "It goes on when it is its turn. Raise the bound of the Webhook if its receiver can take more.",
	}
}

// Held returns the cause for an operation that holds one of the held slots of a Webhook.
func Held(namespace, hook, operation string, since time.Time, held int) why.Cause {
	return why.Cause{
		Type: why.QueuedBehind, Depth: 1, Since: since, About: OperationObject(namespace, operation),
		Message: "operation " + namespace + "/" + operation + " has held a place of webhook " + hook + " since " + stamp(since),
		Evidence: map[string]string{
			"webhook": hook, "bound": "concurrency", "holder": namespace + "/" + operation, "held": strconv.Itoa(held),
		},
		Advice: "Ask why its call takes so long. It gives the place back when the call ends, at the latest after requestTimeout.",
	}
}

// Share returns the cause for a namespace that has used up its share of a resource.
func Share(namespace, of string, since time.Time) why.Cause {
	return rateLimited(namespace, "namespace "+namespace+" has used up its share of "+of, of, since)
}

func rateLimited(namespace, message, share string, since time.Time) why.Cause {
	c := why.Cause{
		Type: why.RateLimited, Message: message, Since: since, Evidence: map[string]string{"namespace": namespace},
		Advice: "It goes on when it is its turn. Have the namespace do less at a time, or give it more: --namespace-writes, " +
			"--namespace-calls and --max-calls of the controller.",
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
