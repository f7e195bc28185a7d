package group

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fairlead-io/fairlead/rights"
)

// leaseVerbs are the verbs that a member needs for Leases.
var leaseVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// leaseRule returns the RBAC rule that a member needs in the namespace of its group.
func leaseRule() string {
	return fmt.Sprintf(`{apiGroups: [%q], resources: ["leases"], verbs: ["%s"]}`, coordinationv1.GroupName,
		strings.Join(leaseVerbs, `", "`))
}

// neededRights returns the permissions of a member.
func neededRights(opt *Options) []rights.Right {
	out := []rights.Right{{Kind: rights.LeaseKind, Namespace: opt.Namespace, Verbs: slices.Clone(leaseVerbs)}}
	if opt.Events {
		out = append(out, rights.Right{Kind: rights.Events().Kind, Namespace: opt.Namespace, Verbs: []string{"create"}})
	}
	return out
}
