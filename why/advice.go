package why

import (
	"maps"
	"strings"
)

// general is the default advice for a type of cause.
var general = map[Type]string{
	Parked:         "See which program or person provides what it waits for.",
	LockHeld:       "Ask why the other one does not end.",
	CircuitOpen:    "See why the endpoint fails: the first call after that decides whether the others go on.",
	RateLimited:    "It goes on when it is its turn. Raise the bound if more can be taken.",
	RetryAfter:     "Wait, or see why the other side takes no more.",
	Forbidden:      "Grant the missing right, or change what refuses.",
	Conflict:       "Find the other writer: kubectl get -o yaml --show-managed-fields shows which manager has set which field.",
	BackOff:        "Correct what the error names: it is tried again by itself.",
	Quarantined:    "Correct what the error names.",
	SourceStale:    "Look whether the API server answers, and can be reached from here.",
	NotSelected:    "Have the program select it, or change it so that it does.",
	NotLeading:     "It goes on by itself in the process that leads, as soon as there is one.",
	HeldBy:         "It goes on by itself in the replica that holds its slot, as soon as there is one.",
	QueuedBehind:   "It goes on when it is its turn: see what those before it are at.",
	DeadlinePassed: "See what took so long, and give it more time if that was right.",
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
