package scenario_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTable runs every scenario against source and store, over each wire that it supports.
func TestTable(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, s := range scenario.Table() {
		if names[s.Name] || s.Holds == "" || s.Section == "" {
			t.Errorf("scenario %q has no unique name, or checks nothing", s.Name)
		}
		names[s.Name] = true
		for _, wire := range scenario.Wires() {
			if wire.Real && !s.Untimed {
				continue
			}
			t.Run(s.Name+"/"+wire.Name, func(t *testing.T) {
				t.Parallel()
				play := func(t *testing.T) {
					res := s.Play(scenario.Fairlead{}, wire)
					for _, p := range res.Problems {
						t.Errorf("%s\n(%s)", p, s.Holds)
					}
					if res.Skipped != "" {
						t.Error(res.Skipped)
					}
				}
				if wire.Real {
					play(t)
					return
				}
				synctest.Test(t, play)
			})
		}
	}
}
