// Package webhook calls HTTP endpoints. A definition gives the request as templates, credentials, a Standard Webhooks
// signature, limits, a breaker and the rules that judge the answer. A guard protects against server-side request
// forgery. The package performs one try at a time and returns its verdict. The caller waits, retries and keeps state,
// with pure functions of this package.
//
//	client, err := webhook.New(webhook.Options{Resolver: secrets, AllowTargets: []string{"10.0.0.0/8"}})
//	defer client.Close()
//	hook, err := webhook.Compile(webhook.Definition{Namespace: "shop", Name: "cleanup",
//		Request: webhook.Request{URL: "https://crm.example.com/customers/{{.Operation.resourceID}}", Method: "DELETE"}})
//	if err != nil { … }                                       // names the field, such as spec.request.url
//
//	permit, wait := client.Acquire(hook, call.ID, wake)       // limits and breaker; never blocks
//	if permit == nil { … }                                    // ask again after wait.For, or when wake is called
//	… record durably that the call is about to be made …
//	result := permit.Call(ctx, call)                          // one request, one verdict
//	switch result.Verdict { case webhook.Succeeded: … case webhook.Retry: … }
//	delay, again := hook.NextTry(tries, result, rand.Float64) // exponential, full jitter; Retry-After wins
//	for Async: permit.Poll(ctx, call, result.Location), then hook.NextPoll(result)
//
// Templates are text/template over .Resource, .TenantID, .Headers, .Operation, .CallbackURL and .Outcome. A missing key
// or null is an error; a template gives a default with {{default "none" (get .Resource "name")}}. Values are escaped
// for their position: as JSON inside the quotes of a JSON body, and as path or query in a URL, slashes included. An
// object or list renders as JSON. The host of the URL may come from data only if no credentials are sent. Additional
// functions are json and toJson, get, default, lower, upper, trim, join, replace, b64enc, urlquery, queryEscape,
// pathEscape, and path for a value of several segments. The functions html, js and call are not available.
//
// Expressions are CEL over response.status (0: no answer), response.headers (lower-case names) and response.body
// (parsed JSON of up to 100,000 values and names, else a string), with the string functions of cel-go's ext.Strings.
// Keys of map literals and patterns of matches must be constants. The nesting depth, the number of list and map
// literals, and the number of all, exists, exists_one, filter and map are bounded.
//
// Invariants:
//   - One try sends at most one request. The only exception: a 401 for a cached token is followed by one more request
//     with a fresh token.
//   - A try ends within its requestTimeout. It reads at most 1 MiB of answer, before and after unpacking, and 64 KiB of
//     headers.
//   - No connection is made to an address that the guard refuses, whether for the target, a poll URL or a token
//     endpoint.
//   - Credentials and signatures go only to the origin of the request's URL and to hosts that the definition itself
//     names.
//   - No secret value appears in a Result, an error or a log line, even if the receiver echoes it.
//   - Templates and expressions see only the given data, and they terminate. Output, steps, cost and memory are bounded
//     before they are used: for all templates of a call together, and for each expression.
//   - Computation for a definition (Client.Compile, rendering, parsing, masking, judging) is scheduled fairly between
//     namespaces by processor time. The slots for long answers in memory are shared fairly too. No namespace blocks
//     another one.
//   - No callback runs under a lock. The package starts no goroutines except those of net/http, which Close ends.
//
// # Parts
//
// Client connects the parts, and a [Permit] runs a try with them. No part calls another one with its lock held.
//
//	gates             gates.go            the gate of each endpoint; its own lock
//	gate              gate.go             slots, rate, breaker and record of one endpoint; its own lock
//	breaker, record   breaker.go, targets.go  parts of a gate, under its lock
//	callbacks         callbacks.go        runs functions of the user; no state
//	turns             turns.go            processor time by namespace; its own lock
//	computations      witness.go          runs the code of definitions in turns; no state
//	tokens            oauth.go            an access token for each endpoint; its own lock, and one for each entry
//	credentialSource  credential.go       the credentials of a request; no state but tokens
//	transports        pool.go, transport.go  connection pools by namespace; its own lock
//	responseLimiter   responselimiter.go  slots for long answers; its own lock
//	lifetime          lifetime.go         tries in progress; its own lock
//	try               try.go, trace.go    one request and its answer; owned by the goroutine of the caller
//	requestTemplate   request.go          renders requests; immutable
//	rules             judge.go            judge answers; immutable
package webhook
