// Package hostile_test has tenants try to stop the controller for all others, on a real control plane, with the
// controller as a process of its own.
//
// A victim sends one ordinary operation after the other while others attack, each from a namespace of its own, with no
// more rights than a tenant has, or with none at all. What has to hold under every attack: the victim's operations
// succeed in time, the controller keeps to its memory, it does not end, and where an attack is one that has to be
// refused, it is.
//
// TestHostileTenants plays several attacks at a time, each for a few seconds. With FAIRLEAD_SOAK=10m it plays all of
// them, one after the other, as often as fits into the time; FAIRLEAD_HOSTILE=regexp plays those only whose names
// match, one after the other, and FAIRLEAD_SEED=n repeats what was random.
//
// # When it was too slow
//
// An operation that is delayed by the attack, and one that is delayed because the machine has other things to do, look
// the same. So the latency is held against two others: the victim's own one, measured before any attack, of which it
// may have five times as much, up to two seconds; and five times (in a short run, which plays several at a time beside
// other tests, ten times) that of a reference, measured in the same moments: a controller that has nothing else to do,
// in the test itself, which sees an object, makes a call and writes a status, as it is done for an operation. What
// makes the API server, the disk or the machine slow makes the reference slow too; what tenants do to each other in the
// controller does not. On a machine that has nothing else to do the first one counts.
//
// The reference needs little of the processors, and a machine that others keep busy gives it that soon; not so the
// controller, which is attacked. So the kernel is asked for how long the threads of the controller have run, and for
// how long they have waited to. An operation may be slow as many times as that stretches what the controller does, up
// to half of the time for which the victim waits. What an attack has the controller compute, or wait for, and whom it
// serves last, stretches nothing: only others who use the machine do, among them the API server and whoever attacks.
package hostile_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
