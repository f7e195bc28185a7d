// Package judge compares explanations of stuck objects with expected ones, for the tests of this module.
package judge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/why"
)

// Case is the expected explanation of an object. Empty fields are not compared.
type Case struct {
	Reason string // why this is the correct answer
	Want   why.Type
	// Message, Advice and Evidence ("key=part") are parts of the first cause. Its texts must not contain Lacks.
	Message, Advice, Lacks string
	Evidence               []string
	Then                   []why.Type    // types of the next causes
	Until                  time.Duration // approximate time from now; negative: none
	Progress               bool          // the object is making progress
}

// Faults returns the differences between an answer and the expected one. A first cause that requires action must have
// advice and a start time.
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

// Await calls ask until the answer is as expected. After patience it reports the faults of the last answer.
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
			text, _ := json.MarshalIndent(got, "", "  ") // an Answer always encodes
			t.Errorf("%s: %s: %v (%s)\n%s", name, strings.Join(faults, "; "), err, j.Reason, text)
			return got
		}
	}
}
