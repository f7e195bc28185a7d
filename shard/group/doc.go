// Package group assigns the slots of package shard to the replicas of a program. It uses only Leases in the cluster
// (coordination.k8s.io/v1). The replicas need not reach each other, and their clocks are never compared.
//
//	g, err := group.New(cfg, group.Options{Namespace: "operators", Name: "gateways", Role: "reconcile"})
//	g.Add(sources)     // a Participant: it receives the slots that are gained and lost
//	g.Add(controllers) // gains after the sources, and loses before them
//	err = g.Run(ctx)   // takes part until ctx ends, then hands over
//
//	if err := g.Fence(slot); err != nil { … } // check right before each external call
//
// # The Leases
//
// The group is the Lease Namespace/Name. An annotation of it holds the record: the layout, the members, and the holder
// and the target of each slot. The target is the member that should hold the slot. Each change of membership is one
// compare-and-swap of the record. It includes new targets, which a pure function computes. Members then follow the
// record, so there is no coordinator. If the target of a slot is not its holder, the slot moves. The participants of
// the holder lose it first. Then the holder writes the target into the record as the new holder. Slots without work in
// progress move at once. The others start no new work, and move when their work has ended, or after 10 minutes. Only a
// member that leaves has the shorter bound of Options.Drain.
//
// Each incarnation of a member has its own Lease and sends a renewal every 2 s, or every second while the API server is
// slow. Both kinds of Leases have the label fairlead.io/shard-group.
//
// A renewal is a JSON patch. It names the uid of the Lease, and tests that no member has marked it as dead. It names no
// version: renewals overlap, and one without a response does not delay the next. Requests for Leases have a connection
// of their own. A connection that is half open closes after 3 s.
//
// A member needs permission to get, list, watch, create, update, patch and delete Leases in the namespace.
//
// # Coverage
//
// Each member states its program, namespaces and kinds in its Lease. It joins only if the members of the record state
// the same program and namespaces, or nothing. Since a join is a compare-and-swap of the record, of two programs only
// one joins. A member of another program that has not renewed its Lease since it was first seen may have crashed. The
// new member then waits until that Lease has expired, instead of ending with an error.
//
// Members of one program with other kinds form a generation. Older generations gain no slots and keep at most their
// share. The record contains the generations only while members differ. It then has format 2, which members of the
// former release do not read: they wait. A member never joins with a generation while a member states nothing.
//
// # Readiness
//
// A member may state in its Lease for which of its slots it is not ready, and why ([Group.Ready]). Other slots count as
// ready. A member that has failed to become ready for a slot for a minute reports it as NotReady. If another member of
// the same coverage is ready for other slots, it gives that slot to it, one slot after another. It then counts as one
// of an older coverage: it gains no slots, and keeps at most its share. Five minutes after the last slot that it gave
// away, it takes one slot, if it has none. When it is ready for all slots that it holds, it counts like the others
// again.
//
// # Boundaries
//
// Slots by namespace have boundaries by the number of objects. Each member states in its Lease how many objects it
// holds, as a histogram of at most 64 points over the hash. The first member of the record moves the boundaries to
// quantiles of all histograms, when all of these hold: no slot moves, the last change was five minutes ago or there was
// none, the largest load of a member falls by a quarter, and each Lease says that its member reads format 3.
//
// The record then has the goal. A step moves the boundaries between some adjacent slots, at most an eighth of all.
// These slots have no target, so their holders release them. The change that releases the last one moves the
// boundaries, and gives the slots to members again. Steps are ordered so that each boundary moves once. If a step takes
// longer than 5 s, the first member removes the goal.
//
// A held slot thus keeps its range. Two members may have different boundaries for a moment, and agree about each slot
// that one of them holds. Fence, Lose and Gain need only the number of a slot. [Group.FenceOf] finds the slot of an
// object by the boundaries with which this member holds its slots.
//
// A record without boundaries has the format of the former release. A record loses its boundaries when the last member
// leaves.
//
// # Death
//
// If a member sees no renewal of another member's Lease for its whole duration (15 s), it marks that Lease as dead. The
// duration is that in the Lease, and at least the observer's own: an edit by hand cannot shorten it. The write requires
// that the version has not changed. The member then assigns the slots of the dead member to others in the record. If
// the dead member was only paused, its next renewal fails, and that incarnation never works again. Unlike a deletion,
// the mark is visible to all members, even if the response to the write was lost. A Lease that a user deleted proves
// nothing: the others wait as long as its holder may still work.
//
// A member stops when its last renewal was sent longer ago than the renew deadline (8 s). The deadline is less than the
// 9 s for which members of the former release respect every Lease, so both may be in the group during a roll-out.
// Responses of less than 6 s cost no slot: renewals are 2 s apart, and each keeps the hold for 8 s. Elapsed time uses
// the monotonic and the wall clock of the process, since the monotonic clock may stop while a machine sleeps. A member
// ends its own work by the clock that says more, and lets others begin by the clock that says less.
//
// # Guarantees
//
//   - SH1: at any time, Fence returns nil for a slot on at most one member. Fence reads the clock, so this also holds
//     for a process that was stopped (SIGSTOP). The caller is responsible for requests that Fence permitted before the
//     stop.
//   - SH2: a slot changes hands in order. Its holder releases it only after Lose of each participant has reported that
//     no work of the slot runs any more, or after the holder is dead. Gain runs on the new holder only after that, so a
//     list that it begins in Gain is not older than the writes of the former holder.
//   - SH5: no slot stays without a holder while there is a member. After a crash another member holds it within 20 s,
//     and after Lose has returned, at once.
//   - SH7: the successor of a crashed member waits until the Lease has expired by the successor's elapsed time.
//   - SH9: no slot is held before the group holds Options.Leader, the Lease with which the program elected a leader
//     before. The group holds it as long as there are members. A member that cannot read the group or renew that Lease
//     for 30 s stops. Another layout takes effect when the last member of the old one has left.
//   - The package writes only Leases. The steady cost is one renewal for each member and period, independent of the
//     number of slots. One member also renews Options.Leader, half as often.
//   - The boundaries of a slot change only while it has no holder.
//   - A record that is unreadable, inconsistent or edited is an error, and its Lease is deleted. Members keep their
//     slots while they have no record; see below.
//
// # A deleted group
//
// The Lease of each member names its slots, and the uid of the group Lease whose record gives it all of them. The
// member that creates a deleted group adopts the slots that fresh Leases name. A statement may be as old as a renewal,
// so the new record may give a slot to a former holder. The present holder keeps that slot. Its Lease does not name the
// new group Lease before the other member has released the slot in the record, or is dead.
//
// A record is founded when free slots may be given. Until then members keep or lose slots, and gain none. A record that
// replaces another one is founded when these hold:
//
//   - Each Lease of a member names the new group Lease, and only slots that the record gives to that member.
//   - The duration of a Lease has passed since this member first saw the new group Lease, and since a Lease vanished
//     that did not name the new group Lease. Members whose Leases were deleted have then stopped.
//
// If Leases cannot be listed, the group is not created, and members keep their slots.
//
// There is one limit. If a user deletes all Leases of a group, a process that starts at that moment does not know the
// former members. It does not wait for them. A member that has not noticed the deletion may then work at the same time,
// for at most the renew deadline.
//
// # Parts
//
// [Group] creates the parts and connects them.
//
//   - record, change and assign (record.go, plan.go, assign.go): the record, its changes and the targets of slots, as
//     pure functions.
//   - view (view.go, watch.go): the observed Leases, from the watch and from responses. Its lock is view.mu.
//   - groupLease (grouplease.go): the Lease of the group with its record, and the last version that this member knows.
//   - ownLease (ownlease.go): the Lease of one incarnation, and its renewal on a goroutine.
//   - handover (handover.go): the slots of one incarnation, and the calls of participants. Its lock is handover.mu.
//   - fence (fence.go): the slots that may be worked on now, behind an atomic pointer. handover writes it.
//   - term (term.go): one incarnation. It connects its ownLease and its handover, and ends both.
//   - liveness (liveness.go): the members that have certainly stopped. It marks and deletes their Leases.
//   - leaderLease (leader.go): the Lease Options.Leader.
//   - record.moveBoundaries (bounds.go): the steps of the boundaries; pure functions.
//   - balance (balance.go): whether the boundaries change, by the histograms of all members.
//   - census (histogram.go): the objects that this member holds, and its histogram. Its lock is census.mu.
//   - holdings (adopt.go): what a member states about its slots, and how a record adopts it.
//   - readiness (readiness.go): the slots that this member gives away because it is not ready for them.
//   - admission (coverage.go): whether the other members accept this one, and its generation.
//   - memberLoop (loop.go): the next step of the member. It asks the other parts.
//   - state, announcer and eventWriter (state.go, changes.go, events.go): the facts for inspection, the log and the
//     Events. The lock is state.mu.
//
// groupLease, liveness, leaderLease, admission, readiness, balance and memberLoop belong to the goroutine of Run and
// need no lock. No lock is acquired while another one is held. Status, Why and the metrics (status.go, why.go,
// metrics.go) describe a snapshot of the parts (inspect.go).
package group
