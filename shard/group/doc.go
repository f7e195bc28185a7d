// Package group says which replica of a program holds which slots (package shard), by Leases in the cluster
// (coordination.k8s.io/v1) alone. The replicas need not reach each other, and no clocks of two of them are compared.
//
//	g, err := group.New(cfg, group.Options{Namespace: "operators", Name: "gateways", Role: "reconcile"})
//	g.Add(sources)     // a Participant: it is told which slots are gained and lost
//	g.Add(controllers) // gains after the sources, and loses before them
//	err = g.Run(ctx)   // takes part until ctx ends, then hands over
//
//	if err := g.Fence(slot); err != nil { … } // asked right before each call to the outside
//
// # The Leases
//
// The group is the Lease Namespace/Name. An annotation of it is the record: the layout, the members, and for each slot
// who holds it and who is to hold it next. Every change of membership is one compare-and-swap of that record, in which
// the new targets are computed by a pure function; then everybody follows the record, and there is no coordinator. A
// slot whose target is another member than its holder moves: the holder has its participants lose it, and then writes
// the target into the record as its holder.
//
// Each incarnation of a member has a Lease of its own, which it renews (every 1.5 s), naming the uid and the version
// that it knows: nobody can have it twice. Both kinds bear the label fairlead.io/shard-group.
//
// A member needs the rights to get, list, watch, create, update and delete Leases in the namespace.
//
// # Death
//
// Who has seen no renewal of a member's Lease for its whole duration (9 s) marks it as dead, on the condition that its
// version is still the one seen; then it gives the member's slots to others, in the record. So the next renewal of a
// member that was merely paused fails: that incarnation is dead for ever. A mark, unlike a deletion, tells everybody
// what has happened, also the one whose answer was lost; a Lease of a member that somebody has deleted by hand proves
// nothing, and is waited for as long as its holder may still work.
//
// A member whose last renewal began longer than the renew deadline (6 s) ago stops by itself. Elapsed time is that of
// the monotonic or of the wall clock of the process: where it ends work, of the one that says more (one stands still
// while a machine sleeps), and where it lets others begin, of the one that says less.
//
// # What holds
//
//   - SH1: at any time at most one member is let through by Fence for a slot. Fence looks at the clock, so it holds of
//     a process that was stopped (SIGSTOP) as well: what it had asked for before it was stopped is the caller's.
//   - SH2: a slot changes hands in order. Its holder lets go only after each participant's Lose has said that nothing
//     of the slot runs any more, or the member is dead. The new holder reads what is in the cluster only then: a list
//     that it begins in Gain is not older than what the old one wrote.
//   - SH5: no slot stays without a holder while there is a member: 15 s after a crash another one holds it, and at once
//     after Lose has returned.
//   - SH7: a successor of a member that has crashed waits until its lease has run out by the successor's elapsed time.
//   - SH9: no slot is held before Options.Leader, the Lease by which the program elected a leader before, is held in
//     the name of the group; and it is held as long as there are members. Another layout takes effect when the last
//     member of the old one has left.
//   - Nothing but Leases is written. The steady cost is one renewal for each member and period, nothing per slot; one
//     member renews Options.Leader besides, half as often.
//   - A record that cannot be read, contradicts itself, or is not what members have written is an error, and the object
//     is deleted. Members of one incarnation of the object hold slots only when no member of another one is left: each
//     Lease says which one it belongs to, and who knew another one waits for as long as a Lease lasts.
//
// Nothing tells a process that begins just when somebody has deleted all Leases of a group that there was one: it waits
// for nobody. What then works beside it is a member that has not noticed, for at most the renew deadline.
//
// # Reading order
//
// record and plan are the record and its changes, assign computes targets, all without a cluster. leases are the
// requests, view what was seen and when. term is one incarnation: it renews and has the slots, which participants gain
// and lose in handover. step decides, one step after the other, on one goroutine. leader keeps Options.Leader.
package group
