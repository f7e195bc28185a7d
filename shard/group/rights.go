package group

import "github.com/fairlead-io/fairlead/rights"

// Rights says what a member asks of the API server: it makes the Group a rights.Asker. Leases of members have names that
// are made up, so that it is a right to all Leases of the namespace.
func (g *Group) Rights() []rights.Right {
	out := []rights.Right{{
		Kind: rights.LeaseKind, Namespace: g.opt.Namespace,
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}}
	if g.opt.Events {
		out = append(out, rights.Right{Kind: rights.Events().Kind, Namespace: g.opt.Namespace, Verbs: []string{"create"}})
	}
	return out
}
