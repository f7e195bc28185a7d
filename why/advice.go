package why

import (
	"maps"
	"strings"
)

// general is the default advice for a type of cause.
var general = map[Type]string{
	Parked:      "Find the program or person that has to act before it can continue.",
	LockHeld:    "Ask `why` about the holder of the lock.",
	CircuitOpen: "Check why the endpoint fails. The next trial call decides whether the circuit closes.",
	RateLimited: "It continues when its turn comes. Raise the limit if the other side can take more.",
	RetryAfter:  "Wait, or check why the other side is overloaded.",
	Forbidden:   "Grant the missing permission, or change the policy that refuses the request.",
	Conflict: "Find the other writer: kubectl get -o yaml --show-managed-fields shows which manager has set which " +
		"field.",
	BackOff:        "Fix the cause of the error. Retries are automatic.",
	Quarantined:    "Fix the cause of the error.",
	SourceStale:    "Check that the API server answers and is reachable from this process.",
	NotSelected:    "Change the selector of the program, or the object, so that it matches.",
	NotLeading:     "It continues automatically in the leader, once there is one.",
	HeldBy:         "It continues automatically in the replica that holds its slot, once there is one.",
	QueuedBehind:   "It continues when its turn comes. Check the work ahead of it in the queue.",
	DeadlinePassed: "Check what took so long, and raise the timeout if that duration is expected.",
}

// maxText is the maximum length of a text in a cause, in bytes. The texts of errors come from other systems and may be
// of any length.
const maxText = 2 << 10

// complete returns c with a type and bounded texts, and with the default advice if c has none and is not progress.
func (c Cause) complete() Cause {
	if c.Type == "" {
		c.Type = Parked
	}
	if c.Advice == "" && !c.Progress {
		c.Advice = general[c.Type]
	}
	c.Message, c.Advice = bounded(c.Message), bounded(c.Advice)
	for key, value := range c.Evidence {
		if len(value) > maxText {
			c.Evidence = maps.Clone(c.Evidence)
			c.Evidence[key] = bounded(value)
		}
	}
	return c
}

func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}
