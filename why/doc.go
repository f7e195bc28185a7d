// Package why has the causes for which an object does not move on, as values: what they are, who knows them, how they are
// asked for and told. It imports no other layer, so that each can tell the causes that it knows: the queue, the gate, the
// lock, the breaker, the source.
//
// Who knows causes is an [Explainer]. [Ask] asks several and puts what they say into one [Answer], the most direct cause
// first. An error can carry causes ([Because], [Of]), so that code of yours can say more than its text does:
//
//	return why.Because(err, why.Cause{
//		Type: why.RateLimited, Message: "the quota of the registry is used up", Until: reset,
//		Advice: "Ask for more, or wait.",
//	})
//
// Read cause.go, answer.go, advice.go, error.go.
package why
