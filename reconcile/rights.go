package reconcile

import "github.com/fairlead-io/fairlead/rights"

// Needs declares the permissions that the code of a reconciler needs besides those of the watches. They are mainly for
// its own writes, and for reads without a watch. Package rights has the verbs of each client method. Needs grants
// nothing; [Controller.Rights] returns the declared permissions.
//
// The admission plugin OwnerReferencesPermissionEnforcement protects owners on some clusters. There an operator also
// needs to update the finalizers subresource of each kind that owns others.
func Needs(all ...rights.Right) Option {
	return func(s *settings) { s.needs = append(s.needs, all...) }
}
