package simulate

import (
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate/internal/bubble"
)

// Search is Test without its verdict. id tells the call from others of the same test. The report is nil in a child.
func Search(t *testing.T, id string, s Subject, parts ...Part) (*engine.Report, error) {
	t.Helper()
	return search(t, t.Name()+" "+id, s, parts)
}

// Play plays one schedule in this process.
func Play(t *testing.T, s Subject, plan engine.Plan, parts ...Part) *engine.Outcome {
	t.Helper()
	c, err := newCourse(s, parts)
	if err != nil {
		t.Fatal(err)
	}
	setup, err := c.bubble(s.Start)
	if err != nil {
		t.Fatal(err)
	}
	var out *engine.Outcome
	synctest.Test(t, func(t *testing.T) {
		if out, err = bubble.Play(setup, plan, nil); err != nil {
			t.Fatal(err)
		}
	})
	return out
}
