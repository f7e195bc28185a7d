// Package conditions maintains the conditions in the status of an object, in the form that kubectl wait and kstatus
// understand. A reconciliation collects its conditions in a [Set] and writes them to the status:
//
//	s := conditions.Of(gw)
//	s.True("Addressed", "Assigned", "it has the address %s", ip)
//	s.Unknown("Programmed", "Waiting", "the data plane has not answered yet")
//	return reconcile.Done, client.ModifyStatus(ctx, r.Client, gw, func(gw *v1.Gateway) error {
//		s.Into(&gw.Status.Conditions)
//		return nil
//	})
//
// Each reconciliation sets all conditions that it knows. Conditions that it does not set are removed. A condition that
// has not changed stays as it is, so client.ModifyStatus sends no request if all of them are unchanged.
//
// # Ready
//
// The condition Ready is computed from the others:
//
//   - It is False if another condition is False, or reports a problem ([Set.Stalled], [Set.Reconciling],
//     [Set.Abnormal]).
//   - Otherwise it is Unknown if another condition is Unknown.
//   - Otherwise it is True, with the reason AsAskedFor.
//
// If Ready is not True, its reason is that of the first condition that caused its status. Its message has the messages
// of all conditions that did. If the caller sets Ready itself, it is not computed.
//
// # The generation
//
// Each condition has the generation of the object that was passed to [Of]. That is the generation that the
// reconciliation observed, even if the status is written to a newer one. A condition of a newer generation is left
// unchanged, because a later reconciliation has set it.
package conditions
