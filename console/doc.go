// Package console has pages for the people who run operators: what goes on, and why the one thing that matters does not
// move. It is mounted by
//
//	fairlead.New(cfg, fairlead.WithListen("127.0.0.1:8080"), fairlead.WithConsole(console.Options{}))
//
// at /console/, and serves /api/why, which says why an object does not move as JSON (package why). Pages are made on the
// server; nothing is loaded from elsewhere, and each works without scripts. With them it is brought up to date while it
// is looked at.
//
// # Who sees what
//
// Nobody sees anything without a right. A token of the cluster, given at the login page or as a bearer token, says who it
// is (TokenReview), and each page asks what that one may (SubjectAccessReview): operations want list on
// operations.fairlead.io in the namespace; pages about the whole program want that in all namespaces, or get on the path
// /debug/ and what follows; a cause is told to who may get the object that it is about. What is not there and what may
// not be seen answer alike.
//
// The login page puts the token, sealed with Options.SessionKey, into a cookie that scripts cannot read, for eight hours
// or as long as the token lives; it is refused where the connection would show it to others. A session that was ended is
// refused by all replicas (logout.go); where they cannot tell each other, a session lasts 15 minutes after its last use. Requests that change
// something need the verb's right, and a token of the page that they come from.
//
// # What it costs
//
// Until somebody looks, nothing. The lists of operations are made from an index that follows the store while they are
// looked at and is dropped ten minutes after. All pages that are open together, however many, take a tenth of a core at
// most to be kept up to date: they are late rather than dear.
//
// Read options.go, handler.go, access.go, session.go, logout.go; live.go keeps pages up to date, index.go is behind the lists, and
// each page has a file of its own.
package console
