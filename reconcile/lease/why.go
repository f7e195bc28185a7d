package lease

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// Why returns who leads instead of this process, or why that is not known. It returns nil while this process leads. The
// result does not depend on the object. Why implements why.Explainer.
func (l *Lease) Why(context.Context, why.Object) []why.Cause {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	leads := l.term != nil
	l.mu.Unlock()
	if leads {
		return nil
	}
	known := l.leader.Load()
	leader, err := known.identity()
	c := why.Cause{
		Type: why.NotLeading, Message: "another process leads: " + leader, Since: known.since(),
		Evidence: map[string]string{
			"leader": leader, "lease": l.opt.Namespace + "/" + l.opt.Name,
			"identity": l.opt.Identity,
		},
		Advice: "Ask the leader.",
	}
	switch {
	case err != nil:
		c.Message = "this process does not lead: " + err.Error()
		c.Evidence["error"] = err.Error()
		c.Advice = "Check the permissions of this process on the Lease, and its connection to the API server."
	case leader == "":
		c.Message = "there is no leader, or it is not known yet"
		c.Advice = ""
	case leader == l.opt.Identity:
		c.Message, c.Advice = "this process is about to lead", ""
	default:
		l.addAddress(&c, leader, known.address())
		if silence := known.unrenewed; silence > 3*l.opt.Retry { // the holder renews each Retry
			c.Evidence["unrenewed"] = silence.Round(time.Second).String()
			c.Message += fmt.Sprintf(", which has not renewed its Lease for %s, and seems to be dead", c.Evidence["unrenewed"])
			c.Advice = fmt.Sprintf("Another process takes over %v after the last renewal.", l.opt.Duration)
		}
	}
	return []why.Cause{c}
}

// addAddress adds the address of the leader to a cause.
func (l *Lease) addAddress(c *why.Cause, leader, address string) {
	host, _, _ := strings.Cut(leader, "_") // default identities begin with the host name
	c.Evidence["host"] = host
	if address != "" {
		c.Evidence["address"] = address
		c.Message += ", at " + address
		c.Advice = "Ask the one that leads, at " + address + "."
		return
	}
	c.Advice = fmt.Sprintf("Ask the leader. If its host is a pod of this namespace: kubectl port-forward -n %s pod/%s, "+
		"with the port at which the program listens.", l.opt.Namespace, host)
}
