// Package console serves web pages for the people who run operators. The pages show the state of the program and
// explain why an object makes no progress. It is mounted by
//
//	fairlead.New(cfg, fairlead.WithListen("127.0.0.1:8080"), fairlead.WithConsole(console.Options{}))
//
// at /console/. It also serves /api/why, which returns the explanation for an object as JSON (package why). Pages are
// rendered on the server. They load nothing from other hosts and work without scripts. With scripts, open pages are
// updated live.
//
// # Authorization
//
// Every page requires a right. A token of the cluster, given at the login page or as a bearer token, identifies the
// reader (TokenReview). Each page then checks the reader's rights (SubjectAccessReview). Pages about the whole program
// require get on a path below /debug/. A Section may name rights that are enough instead. A cause is shown to readers
// who may get the object that it is about. The answers for a missing object and for a hidden one are the same.
//
// The login page seals the token with Options.SessionKey and stores it in a cookie that scripts cannot read. A session
// lasts eight hours, or as long as the token is valid. Login is refused on connections that would expose the token. All
// replicas refuse a session that was ended. If replicas cannot share that information, a session lasts 15 minutes after
// its last use. Requests that change objects require the right for that verb, and a token of the page that they come
// from.
//
// # Cost
//
// Without readers the console costs almost nothing. Updating all open pages together takes at most a tenth of a core:
// under load, updates are delayed.
//
// To understand the code, read options.go and console.go. Each page has its own file. Package internal/pages identifies
// readers, checks rights, renders and updates.
package console
