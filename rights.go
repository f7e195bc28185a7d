package fairlead

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/rights"
	"github.com/fairlead-io/fairlead/shard"
)

// Need says what the program asks of the cluster besides what its sources and controllers watch and what a controller
// says with reconcile.Needs: for what was added with Add, an HTTP API and the like. It allows nothing by itself.
func (c *Host) Need(all ...rights.Right) {
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	c.needs = append(c.needs, all...)
}

// Ask has Rights tell what a asks of the cluster, too: for what knows that by itself, as hooks of package admission do.
func (c *Host) Ask(a rights.Asker) {
	if a == nil {
		return
	}
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	c.askers = append(c.askers, a)
}

// Rights says what all that was declared so far asks of the cluster: sources, controllers, and on the first cluster the
// Lease of WithLeaderElection or those of WithShards, with the namespaces by which objects are shared; and Need. It sends nothing and may be called before Run, so that
// package rights makes a role of it:
//
//	account := rights.Account{Namespace: "web-system", Name: "web"}
//	objects, err := rights.Manifests(rt.Client().Mapper(), account, rt.Rights())
//
// The order is stable, and nothing is said twice.
func (c *Host) Rights() []rights.Right {
	c.rt.mu.Lock()
	all := slices.Clone(c.needs)
	askers := slices.Clone(c.askers)
	c.rt.mu.Unlock()
	if c.observers != nil {
		askers = append(askers, c.observers)
	}
	if c.name == "" {
		if l, ok := c.rt.opts.leadership.(rights.Asker); ok {
			askers = append(askers, l)
		}
		if g := c.rt.Shards(); g != nil {
			askers = append(askers, g)
		}
	}
	if g := c.rt.Shards(); g != nil && g.Layout().By == shard.Namespace { // see package source: not needed, but much less
		all = append(all, rights.Of(corev1.SchemeGroupVersion.WithKind("Namespace"), "list"))
	}
	for _, a := range askers {
		all = append(all, a.Rights()...)
	}
	return rights.Merge(all)
}
