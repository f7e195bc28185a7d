// Package webhook calls an HTTP endpoint the modern way: request from templates, credentials, Standard Webhooks
// signature, a guard against server-side request forgery, limits and a breaker per endpoint, and rules that judge the
// answer. It performs one try at a time and says what it means; waiting, retrying and remembering belong to the caller,
// who gets pure functions for them.
//
//	client, err := webhook.New(webhook.Options{Resolver: secrets, AllowTargets: []string{"10.0.0.0/8"}})
//	defer client.Close()
//	hook, err := webhook.Compile(webhook.Definition{Namespace: "shop", Name: "cleanup",
//		Request: webhook.Request{URL: "https://crm.example.com/customers/{{.Operation.resourceID}}", Method: "DELETE"}})
//	if err != nil { … }                                       // names the field: spec.request.url: cannot parse template: …
//
//	permit, wait := client.Acquire(hook, call.ID, wake)       // limits and breaker; never blocks
//	if permit == nil { … }                                    // ask again after wait.For, or when wake is called
//	… record durably that the call is about to be made …
//	result := permit.Call(ctx, call)                          // one request, one verdict
//	switch result.Verdict { case webhook.Succeeded: … case webhook.Retry: … }
//	delay, again := hook.NextTry(tries, result, rand.Float64) // exponential, full jitter; Retry-After wins
//	for Async: permit.Poll(ctx, call, result.Location), then hook.NextPoll(result)
//
// Templates are text/template over .Resource, .TenantID, .Headers, .Operation, .CallbackURL and .Outcome; a missing key
// is an error, and so is null: give a default with {{default "none" (get .Resource "name")}}. Values are escaped where
// they stand: inside the quotes of a JSON body as JSON, in a URL's path and query as such, a slash too; an object or
// list renders as JSON. The host of the URL may come from data only where no credentials are sent. Functions besides
// those of text/template (html, js and call are not available): json and toJson, get, default, lower, upper, trim,
// join, replace, b64enc, urlquery, queryEscape, pathEscape, and path for a value that is several segments.
//
// Expressions are CEL over response.status (0: no answer came), response.headers (lower-case names) and response.body
// (parsed JSON of up to 100,000 values and names, else a string), with the string functions of cel-go's ext.Strings.
// Keys of maps and patterns of matches are constants, and how deep an expression is nested, how many lists and maps it
// spells out, and how often it uses all, exists, exists_one, filter and map is bounded.
//
// Invariants:
//   - One try is at most one request, except that a 401 for a cached token is followed by one more with a fresh token.
//   - A try ends within its requestTimeout, and reads at most 1 MiB of answer and 64 KiB of headers, packed or
//     not.
//   - No connection is made to an address that the guard refuses, be it of the target, a poll URL or a token endpoint.
//   - Credentials and signatures go to the origin of the request's URL only, and to hosts that the definition itself
//     names.
//   - No secret value appears in a Result, an error or a log line, whoever wrote it there.
//   - Templates and expressions see nothing but the data given, and end: output, steps, cost and memory are bounded
//     before they are taken, for all templates of a call together and for each expression.
//   - What a definition has us compute (Client.Compile, rendering, parsing, masking, judging) is done in turns that are
//     shared between namespaces by the time it takes, and so are the places of the long answers in memory: no namespace
//     waits for another one's.
//   - No callback runs under a lock, and the package starts no goroutine besides those of net/http, which Close ends.
package webhook
