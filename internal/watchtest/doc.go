// Package watchtest checks the guarantees of a watch in tests: a [Watched] store follows an API server that can fail in
// every way (fairleadtest/apiserver), a [Recorder] keeps the events of a subscriber, and a checker finds violations.
//
//	server, _ := apiserver.New(apiserver.Options{Pipe: true})
//	defer server.Close()
//	watched := watchtest.Watch(t, server, source.Config{Resource: configMaps})
//	recorder := watched.Record("mine")
//	server.On(apiserver.Match{Verb: "watch", Nth: 2}, apiserver.Cut(100)) // a fault
//	…                                                                     // changes, and what your code does about them
//	if err := recorder.Wait(ctx, func(r watchtest.Recording) bool { return len(r.Events) > 3 }); err != nil { … }
//	for _, v := range watched.Check() { t.Error(v) }
//
// With Options.Pipe all of it runs on the fake clock of testing/synctest: back-off, silence and lifetimes of hours cost
// no time, and a test is as exact as its script.
//
// # What is checked
//
// The names are those of the invariants in the architecture. [Recording.Check] is a function of the recording alone, so
// that it works for any cache whose events somebody writes down:
//
//   - W1: per key, versions never go down, unless an EPOCH came in between.
//   - W2: per key and uid: ADDED, MODIFIED…, DELETED; a changed uid is DELETED, then ADDED.
//   - W3: the prior state of an event is what that subscriber was given last.
//   - W5: when an event is handled, the cache is at least as new as the event.
//   - W6: SYNCED comes once, after the initial objects, and counts them.
//   - W10: what waits for a subscriber is bounded by the number of keys, not of events.
//   - W11: nothing is deleted by mistake: an incarnation that was DELETED never comes back.
//
// [Recording.CheckAtRest] adds W4: when nothing changes any more, server = cache = fold of the events.
package watchtest
