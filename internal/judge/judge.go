// Package judge has what tests of causes share: what is to be told of a stuck object, and how an answer differs from
// it. It is for our own tests.
package judge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// Case is what has to be told of an object. What is empty does not matter.
type Case struct {
	Reason string // why that is the right answer
	Want   why.Type
	// Message, Advice and Evidence ("key=part") are parts of what is said first; Lacks is in no text of it.
	Message, Advice, Lacks string
	Evidence               []string
	Then                   []why.Type    // what is told after it
	Until                  time.Duration // about when from now; negative: never
	Progress               bool          // it is no trouble
}

// Faults says what of an answer is not as it has to be. A first cause that somebody has to do something about says
// what, and since when it is so.
func (j Case) Faults(a why.Answer) (all []string) {
	if len(a.Causes) == 0 {
		return []string{"nothing is told"}
	}
	c := a.Causes[0]
	trouble := c.Type != why.Ended && !c.Progress
	fault := func(wrong bool, text string) {
		if wrong {
			all = append(all, text)
		}
	}
	fault(c.Type != j.Want, "it is not "+string(j.Want))
	fault(!strings.Contains(c.Message, j.Message), "the message does not say "+j.Message)
	fault(!strings.Contains(c.Advice, j.Advice), "the advice does not say "+j.Advice)
	fault(j.Lacks != "" && strings.Contains(c.Message+c.Advice, j.Lacks), "it says "+j.Lacks)
	fault(trouble && c.Advice == "", "there is no advice")
	fault(trouble && c.Since.IsZero(), "there is no since")
	for _, pair := range j.Evidence {
		key, part, _ := strings.Cut(pair, "=")
		got := c.Evidence[key]
		fault(got == "" || !strings.Contains(got, part), "the evidence lacks "+pair)
	}
	for i, next := range j.Then {
		fault(len(a.Causes) < i+2 || a.Causes[i+1].Type != next, "then "+string(next)+" is to be told")
	}
	left := time.Until(c.Until)
	fault(j.Until > 0 && (left > j.Until+10*time.Second || left < j.Until*3/4-10*time.Second),
		"until is not about in "+j.Until.String())
	fault(j.Until < 0 && !c.Until.IsZero(), "there is an until")
	fault(a.Stuck != (c.Type != why.Ended && !j.Progress), "stuck is wrong")
	return all
}

// Await asks until the answer is as it has to be. It reports the faults of the last one if that does not come in time.
func (j Case) Await(
	t *testing.T, name string, patience time.Duration, ask func() (why.Answer, error),
) (got why.Answer) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		got, err := ask()
		faults := j.Faults(got)
		if err == nil && len(faults) == 0 {
			return got
		}
		select {
		case <-tick.C:
		case <-over.C:
			text, _ := json.MarshalIndent(got, "", "  ") // it can be written
			t.Errorf("%s: %s: %v (%s)\n%s", name, strings.Join(faults, "; "), err, j.Reason, text)
			return got
		}
	}
}
