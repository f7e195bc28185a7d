package fairlead

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
)

// roster has what the parts of a program have declared on one cluster: checks before the start, rights and controllers.
// It is safe for concurrent use. No other lock is acquired under its lock.
type roster struct {
	mu          sync.Mutex // after declared.mu
	checks      []func() error
	needs       []rights.Right
	askers      []rights.Asker
	controllers []*reconcile.Controller
}

// addCheck adds a function that runs before the start.
func (r *roster) addCheck(fn func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, fn)
}

// pendingChecks returns the functions of addCheck.
func (r *roster) pendingChecks() []func() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.checks)
}

// addController adds a controller, and its rights.
func (r *roster) addController(c *reconcile.Controller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.controllers = append(r.controllers, c)
	r.askers = append(r.askers, c)
}

// overseen returns the controllers.
func (r *roster) overseen() []*reconcile.Controller {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.controllers)
}

// addNeeds adds rights.
func (r *roster) addNeeds(all []rights.Right) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.needs = append(r.needs, all...)
}

// addAsker adds a part that knows its own rights.
func (r *roster) addAsker(a rights.Asker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.askers = append(r.askers, a)
}

// rights returns the declared rights, and the parts that know further ones.
func (r *roster) rights() ([]rights.Right, []rights.Asker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.needs), slices.Clone(r.askers)
}

// registrations are the metrics that one cluster has registered. Only one goroutine may use them at a time.
type registrations struct {
	to  prometheus.Registerer // it adds the label of the cluster
	all []prometheus.Collector
}

func (c *registrations) register(metrics ...prometheus.Collector) error {
	var errs []error
	for _, m := range metrics {
		if err := c.to.Register(m); err != nil {
			errs = append(errs, fmt.Errorf("cannot register metrics: %w", err))
			continue
		}
		c.all = append(c.all, m)
	}
	return errors.Join(errs...)
}

// unregister removes the metrics that register has registered, but not those of another cluster with the same name.
func (c *registrations) unregister() {
	for _, m := range c.all {
		c.to.Unregister(m)
	}
	c.all = nil
}
