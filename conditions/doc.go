// Package conditions tells in a status how an object is doing, so that people, kubectl wait and tools that know kstatus
// understand it.
//
//	s := conditions.Of(gw)
//	s.True("Addressed", "Assigned", "it has the address %s", ip)
//	s.Unknown("Programmed", "Waiting", "the data plane has not answered yet")
//	return reconcile.Done, client.ModifyStatus(ctx, r.Client, gw, func(gw *v1.Gateway) error {
//		s.Into(&gw.Status.Conditions)
//		return nil
//	})
//
// A reconciliation says anew, each time, all that it knows; what it does not say any more is removed. Of what is as it
// was, nothing changes, so that no request is sent for it (client.ModifyStatus).
//
// # Ready
//
// The condition Ready is computed from the others, the worst first: False if one of them is False, or says that
// something is wrong ([Set.Stalled], [Set.Reconciling], [Set.Abnormal]); else Unknown if one of them is; else True,
// with the reason AsAskedFor. Otherwise its reason is that of the first of the worst, and its message tells all of these.
// Who says Ready itself is believed.
//
// # The generation
//
// Each condition carries the generation of the object that [Of] was given: what was looked at, also where the status
// is written to a newer one. A condition of a newer generation than that is left as it is: another reconciliation has
// said it, and knows better.
package conditions
