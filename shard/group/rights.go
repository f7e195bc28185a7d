package group

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fairlead-io/fairlead/rights"
)

// leaseVerbs are what a member does with Leases.
var leaseVerbs = []string{"get", "list", "watch", "create", "update", "delete"}

// leaseRule is the RBAC rule that a member needs in the namespace of its group.
func leaseRule() string {
	return fmt.Sprintf(`{apiGroups: [%q], resources: ["leases"], verbs: ["%s"]}`, coordinationv1.GroupName,
		strings.Join(leaseVerbs, `", "`))
}

// Rights says what a member asks of the API server: it makes the Group a rights.Asker. Leases of members have names that
// are made up, so that it is a right to all Leases of the namespace.
func (g *Group) Rights() []rights.Right {
	out := []rights.Right{{
		Kind: rights.LeaseKind, Namespace: g.opt.Namespace,
		Verbs: slices.Clone(leaseVerbs),
	}}
	if g.opt.Events {
		out = append(out, rights.Right{Kind: rights.Events().Kind, Namespace: g.opt.Namespace, Verbs: []string{"create"}})
	}
	return out
}
