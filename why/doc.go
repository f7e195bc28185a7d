// Package why describes, as values, why an object makes no progress. A [Cause] is one reason, with evidence and advice.
// An [Explainer] knows causes, such as a queue, a gate, a lock, a circuit breaker or a source. [Ask] collects the
// causes of several explainers into one [Answer], the most direct cause first. The package imports no other layer, so
// every layer can report its causes.
//
// An error can carry causes ([Because], [Of]). Application code can thus say more than the text of its error does:
//
//	return why.Because(err, why.Cause{
//		Type: why.RateLimited, Message: "the quota of the registry is used up", Until: reset,
//		Advice: "Ask for more, or wait.",
//	})
//
// A new Type of the library needs a place in order (answer.go); without one it precedes all others, as the types of
// programs do. It may have a general advice (advice.go). The executor counts the types that tally.go lists, and the
// console describes them (operations/console/section.go).
//
// Reading order: cause.go, answer.go, advice.go, error.go.
package why
