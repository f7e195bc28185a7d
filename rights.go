package fairlead

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
)

// Need declares permissions that the program needs in addition to those of its sources, its controllers and
// reconcile.Needs. It is for functions added with Add, such as an HTTP API. Need only declares; it grants nothing.
func (c *Host) Need(all ...rights.Right) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needs = append(c.needs, all...)
}

// Ask includes the rights of a in Rights. It is for parts that know their own rights, such as the hooks of package
// admission.
func (c *Host) Ask(a rights.Asker) {
	if a == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.askers = append(c.askers, a)
}

// Rights returns the permissions that all declarations so far need: those of sources, controllers and Need. On the
// first cluster it includes the Lease of WithLeaderElection or the Leases of WithShards. With shards by namespace it
// includes listing Namespaces, on every cluster. Rights sends no requests and may be called before Run, so that package
// rights can make a role:
//
//	account := rights.Account{Namespace: "web-system", Name: "web"}
//	objects, err := rights.Manifests(rt.Client().Mapper(), account, rt.Rights())
//
// The order is stable and has no duplicates.
func (c *Host) Rights() []rights.Right {
	c.mu.Lock()
	all := slices.Clone(c.needs)
	askers := slices.Clone(c.askers)
	c.mu.Unlock()
	if c.observers != nil {
		askers = append(askers, c.observers)
	}
	if c.name == "" {
		if l, ok := c.rt.leadership.election.(rights.Asker); ok {
			askers = append(askers, l)
		}
		if g := c.rt.Shards(); g != nil {
			askers = append(askers, g)
		}
	}
	if g := c.rt.Shards(); g != nil && g.Layout().By == shard.Namespace { // optional, but saves much; see internal/source
		all = append(all, rights.Of(corev1.SchemeGroupVersion.WithKind("Namespace"), "list"))
	}
	for _, a := range askers {
		all = append(all, a.Rights()...)
	}
	return rights.Merge(all)
}
