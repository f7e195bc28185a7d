package fairlead

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

// declared are the clusters, functions and controllers of a program, and the mistakes in their declarations. One lock
// guards them, because the start of Run changes what a declaration means.
type declared struct {
	log *slog.Logger

	mu          sync.Mutex // before roster.mu
	ran         bool       // Run was called
	err         error      // mistakes, returned by Run
	clusters    []*Host
	always      []task // see AddAlways
	controllers []*reconcile.Controller
	explainers  []why.Explainer // see Explain
}

// begin records the start of Run and returns the checks of all declarations. It returns an error at the second call.
func (d *declared) begin() ([]func() error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ran {
		return nil, errRan
	}
	d.ran = true
	err := d.err
	checks := []func() error{func() error { return err }}
	for _, c := range d.clusters {
		checks = append(append(checks, func() error { return c.err }, c.observers.Check), c.roster.pendingChecks()...)
	}
	return checks, nil
}

// mistake records a mistake that Run returns. After the start of Run the mistake is also logged.
func (d *declared) mistake(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mistakeLocked(err)
}

func (d *declared) mistakeLocked(err error) {
	if d.ran {
		d.log.Error("mistake in a declaration", "error", err)
	}
	d.err = errors.Join(d.err, err)
}

// mistakes returns the mistakes that begin did not return.
func (d *declared) mistakes() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// declare calls fn, which makes a declaration and returns its mistake. ran is errRan if Run was called before.
func (d *declared) declare(fn func(ran error) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ran error
	if d.ran {
		ran = errRan
	}
	if err := fn(ran); err != nil {
		d.mistakeLocked(err)
	}
}

// join adds a cluster that was declared at a place. It returns false if Run was called; the cluster then runs nothing.
func (d *declared) join(c *Host, at string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ran:
		d.mistakeLocked(fmt.Errorf("%s: cannot join cluster %q: %w", at, c.name, errRan))
		return false
	case c.name == "":
		d.mistakeLocked(fmt.Errorf("%s: cannot join cluster: it has no name", at))
	case slices.ContainsFunc(d.clusters, func(other *Host) bool { return other.name == c.name }):
		d.mistakeLocked(fmt.Errorf("%s: cannot join cluster: another one is named %q", at, c.name))
	}
	d.clusters = append(d.clusters, c)
	return true
}

// addAlways adds a function that runs whether or not this process leads.
func (d *declared) addAlways(t task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ran {
		d.mistakeLocked(fmt.Errorf("cannot add %q: %w", t.name, errRan))
		return
	}
	d.always = append(d.always, t)
}

// addController adds a controller of a cluster. If replicas share the objects, it must be declared before Run.
func (d *declared) addController(c *Host, ctl *reconcile.Controller, shared bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ran && shared {
		d.mistakeLocked(fmt.Errorf("cannot run controller %q: where replicas share the objects it has to be declared "+
			"before Run", ctl.Name()))
	}
	d.controllers = append(d.controllers, ctl)
	c.roster.addController(ctl)
}

// explain adds an explainer.
func (d *declared) explain(e why.Explainer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.explainers = append(d.explainers, e)
}

// members returns the clusters.
func (d *declared) members() []*Host {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.clusters)
}

// overseen returns the controllers of all clusters.
func (d *declared) overseen() []*reconcile.Controller {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.controllers)
}

// explaining returns the explainers.
func (d *declared) explaining() []why.Explainer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.explainers)
}

// tasks returns the functions that run whether or not this process leads.
func (d *declared) tasks() []task {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.always)
}

// serves reports whether this process has functions to run while it does not lead.
func (d *declared) serves() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.always) > 0
}
