package controller

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// checklist tracks the sources of addresses until each one is known or known to be unavailable. It is safe for
// concurrent use.
type checklist struct {
	log   *slog.Logger
	empty chan struct{} // closed when no source is pending

	mu          sync.Mutex // guards the rest
	pending     map[string]struct{}
	unavailable []string // with the reason
}

func newChecklist(log *slog.Logger, sources ...string) *checklist {
	c := &checklist{log: log, empty: make(chan struct{}), pending: map[string]struct{}{}}
	for _, s := range sources {
		c.pending[s] = struct{}{}
	}
	return c
}

// done records that a source is known, or why it is unavailable. Only the first call for a source counts. The last
// source logs the unavailable ones, once.
func (c *checklist) done(source string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, is := c.pending[source]; !is {
		return
	}
	delete(c.pending, source)
	if err != nil {
		c.unavailable = append(c.unavailable, fmt.Sprintf("%s (%v)", source, err))
	}
	if len(c.pending) > 0 {
		return
	}
	defer close(c.empty)
	if len(c.unavailable) > 0 {
		slices.Sort(c.unavailable)
		c.log.Warn(
			"cannot read all address ranges of the cluster: webhooks may reach services and pods at public addresses. "+
				"List their ranges with --deny-target, or grant the RBAC rules of deploy/rbac.yaml",
			"missing", strings.Join(c.unavailable, "; "),
		)
	}
}
