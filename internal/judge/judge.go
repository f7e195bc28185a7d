// Package judge checks answers of package why in our own tests: a [Case] is the expected answer for a stuck object.
package judge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// Case is the expected answer for an object. Empty fields are not checked.
type Case struct {
	Reason string // explains why this answer is right, for failure messages
	Want   why.Type
	// Message, Advice and Evidence ("key=part") are substrings of the first cause. Lacks must not occur in its
	// message or advice.
	Message, Advice, Lacks string
	Evidence               []string
	Then                   []why.Type    // types of the causes after the first one
	Until                  time.Duration // approximate time to Until of the first cause; negative: it must be zero
	Progress               bool          // the object makes progress and is not stuck
}

// Faults returns the differences between an answer and the case. It also requires Advice and Since of a first cause
// that makes the object stuck.
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

// Await calls ask until its answer has no faults. If that takes longer than patience, the test fails with the faults
// of the last answer.
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
			text, _ := json.MarshalIndent(got, "", "  ") // cannot fail
			t.Errorf("%s: %s: %v (%s)\n%s", name, strings.Join(faults, "; "), err, j.Reason, text)
			return got
		}
	}
}
