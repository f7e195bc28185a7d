package hostile_test

// attack is one attempt to stop the controller.
type attack struct {
	name string
	// row is the attack's row in the table of the issue; 0: the attack came later.
	row int
	// group names attacks that a short run plays at the same time; 0: only a long run plays the attack.
	group int
	// play attacks until the context of the tenant ends, and returns soon after that.
	play func(*tenant)
	// writes marks an attack by objects that cost the API server itself much time, as often as the attacker writes them.
	// All watches of the resource lag meanwhile, which no controller can prevent. Then only the median of the victim has
	// to meet the bar.
	writes bool
	// check, unless nil, inspects the state after the attack.
	check func(*tenant) (problems []string)
}

// groups of a short run
const (
	_ = iota
	groupCompute
	groupHang
	groupAPI
	groupCredentials
	groupObjects
	groupIdentity
	groups
)

func attacks() []attack {
	return []attack{
		// Computation: compiling, rendering, parsing and judging.
		{name: "expressions-memory", row: 1, group: groupCompute, play: expressionsMemory},
		{name: "expressions-time", group: groupCompute, play: expressionsTime},
		{name: "expressions-compile", row: 2, group: groupCompute, play: expressionsCompile},
		{name: "expressions-random", row: 2, play: expressionsRandom},
		{name: "answers-values", row: 5, group: groupCompute, play: answersOfManyValues},
		{name: "answers-packed", row: 5, play: answersPacked},
		{name: "answers-headers", row: 5, play: answersOfHeaders},
		{name: "answers-slow", row: 5, group: groupHang, play: answersSlow},
		{name: "templates-headers", row: 6, group: groupCompute, play: templatesOfHeaders},
		{name: "templates-many", play: templatesOfManyWebhooks},
		{name: "requests-deep", writes: true, play: requestsDeep},
		// Frequency.
		{name: "retries", row: 3, play: retriesAtTheFloor},
		{name: "polls", row: 3, play: pollsAtTheFloor},
		{name: "polls-retry-after", play: pollsRetryAfter},
		{name: "hang-tenants", row: 4, group: groupHang, play: hangWithManyTenants},
		{name: "webhooks-edited", group: groupObjects, play: webhooksEdited},
		{name: "webhooks-breakers", group: groupIdentity, play: webhooksBreakers},
		{name: "operations-again", group: groupIdentity, play: operationsAgain},
		{name: "operations-cancel", play: operationsCanceled},
		{name: "operations-lists", play: operationsWithLists},
		{name: "operations-ttl", play: operationsShortLived},
		{name: "operations-waiting", play: operationsWaiting},
		{name: "operations-labelled", play: operationsLabelled},
		{name: "operations-at-once", play: operationsAtOnce},
		{name: "operations-in-one-queue", play: operationsInOneQueue},
		{name: "webhooks-again", play: webhooksAgain},
		{name: "namespaces-many", play: namespacesMany},
		{name: "locks", group: groupObjects, play: locksHeld},
		{name: "names", play: namesOfAllKinds},
		// Size.
		{name: "objects-full", row: 13, group: groupObjects, play: objectsFull},
		{name: "objects-touched", play: objectsTouched},
		{name: "objects-ended-touched", play: objectsEndedTouched},
		{name: "objects-finalizers", play: objectsFinalizers},
		{name: "secrets-changed", play: secretsChanged},
		// Targets and identities of calls.
		{name: "keys-alike", row: 8, group: groupIdentity, play: keysAlike, check: keysDiffer},
		{name: "targets", row: 11, group: groupIdentity, play: targetsInside},
		{name: "paths", row: 17, group: groupIdentity, play: pathsAndHosts},
		{name: "tokens-oauth", row: 12, group: groupCredentials, play: tokensOfOAuth},
		{name: "tokens-slow", play: tokensSlow},
		{name: "keys-signing", group: groupCredentials, play: keysOfSignatures},
		{name: "certificates", group: groupCredentials, play: certificatesChanged},
		{name: "connections-http2", group: groupCredentials, play: connectionsHTTP2},
		{name: "connections-hosts", play: connectionsToManyHosts},
		{name: "connections-odd", group: groupCredentials, play: connectionsOdd},
		// The HTTP API.
		{name: "api-slow", row: 7, group: groupAPI, play: apiSlow},
		{name: "api-idle", row: 7, group: groupAPI, play: apiIdle},
		{name: "api-tokens", row: 7, group: groupAPI, play: apiJunkTokens},
		{name: "api-streams", row: 16, group: groupAPI, play: apiStreams},
		{name: "api-streams-busy", play: apiStreamsBusy},
		{name: "api-continued", group: groupAPI, play: apiContinued},
		{name: "api-callbacks", group: groupAPI, play: apiCallbacks},
		{name: "api-pages", play: apiPages},
		{name: "api-paths", group: groupAPI, play: apiLongPaths},
	}
}
