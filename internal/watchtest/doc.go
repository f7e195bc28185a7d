// Package watchtest checks the guarantees of a watch in tests. A [Watched] store follows an API server with injected
// faults (fairleadtest/apiserver), a [Recorder] records the events of a subscriber, and a checker finds violations.
//
//	server, _ := apiserver.New(apiserver.Options{Pipe: true})
//	defer server.Close()
//	watched := watchtest.Watch(t, server, source.Config{Resource: configMaps})
//	recorder := watched.Record("mine")
//	server.On(apiserver.Match{Verb: "watch", Nth: 2}, apiserver.Cut(100)) // a fault
//	…                                                                     // changes and the code under test
//	if err := recorder.Wait(ctx, func(r watchtest.Recording) bool { return len(r.Events) > 3 }); err != nil { … }
//	for _, v := range watched.Check() { t.Error(v) }
//
// With Options.Pipe everything runs on the fake clock of testing/synctest: hours of back-off or silence take no time,
// and a test is deterministic.
//
// # Invariants
//
// The invariants have the names of the architecture. [Recording.Check] needs only the recording, so it works for any
// cache whose events can be recorded:
//
//   - W1: per key, versions never decrease, except across an EPOCH.
//   - W2: per key and UID: ADDED, MODIFIED…, DELETED; a changed UID is DELETED, then ADDED.
//   - W3: the prior state of an event is the last state that the subscriber has received.
//   - W5: when an event is handled, the cache is at least as new as the event.
//   - W6: SYNCED comes once, after the initial objects, and has their number.
//   - W10: the number of pending changes is bounded by the number of keys, not of events.
//   - W11: no deletion is wrong: an object that was DELETED never comes back with the same UID.
//
// [Recording.CheckAtRest] also checks W4: at rest, the server, the cache and the state after all events are equal.
package watchtest
