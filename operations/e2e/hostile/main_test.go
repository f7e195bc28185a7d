// Package hostile_test lets tenants try to stop the controller for all others. It runs the controller as a process of
// its own, on a real control plane.
//
// A victim sends one ordinary operation after the other while others attack. Each attacker has its own namespace and
// the rights of a tenant, or no rights at all. Under every attack the victim's operations succeed in time, and the
// controller keeps within its memory and does not end. Attacks that must be refused are refused.
//
// TestHostileTenants plays several attacks at a time, each for a few seconds. FAIRLEAD_SOAK=10m plays all of them, one
// after the other, as often as the time allows. FAIRLEAD_HOSTILE=regexp plays only the attacks with matching names, one
// after the other. FAIRLEAD_SEED=n repeats random choices.
//
// # Bounds of latency
//
// The latency of an operation does not show whether the attack or a busy machine has delayed it. So it has several
// bounds, and the largest one counts.
//
// The first bound is five times the victim's own latency, measured before any attack, up to two seconds. The second
// bound is five times the latency of a reference, measured at the same moments. The factor is ten in a short run, which
// plays several attacks at a time beside other tests. The reference is a controller inside the test without other work.
// It sees an object, makes a call and writes a status, as the controller does for an operation. A slow API server, disk
// or machine slows the reference as well, and tenants inside the controller do not. On an idle machine the first bound
// counts.
//
// The reference needs little processor time and gets it soon even on a busy machine, unlike the attacked controller. So
// the test asks the kernel how long the controller's threads have run and have waited for a processor. The third bound
// is the first one stretched by that ratio, up to half of the time that the victim waits. Work that an attack causes
// inside the controller does not stretch it. Only other users of the machine do, including the API server and the
// attackers.
package hostile_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
