package simulate_test

import (
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate"
	"github.com/fairlead-io/fairlead/simulate/internal/toys"
)

// Each planted bug is found in few schedules, and its repaired twin has no finding.
func TestPlantedBugs(t *testing.T) {
	for _, bug := range toys.Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			report, err := simulate.Search(t, "bug", bug.Subject(false), append(bug.Parts, simulate.Schedules(30))...)
			if err != nil {
				t.Fatal(err)
			}
			if report != nil {
				if len(report.Findings) == 0 {
					t.Fatalf("no finding: %s", engine.Text(report, engine.Names{}))
				}
				f := report.Findings[0]
				if s := f.Symptoms[0]; s.Verdict != bug.Verdict || !strings.Contains(s.Text, bug.Says) {
					t.Errorf("the finding is %s: %s\nwant %s about %s\n%s", s.Verdict, s.Text, bug.Verdict, bug.Says,
						engine.Text(report, engine.Names{}))
				}
			}
			report, err = simulate.Search(t, "twin", bug.Subject(true), append(bug.Parts, simulate.Schedules(100))...)
			if err != nil {
				t.Fatal(err)
			}
			if report != nil && (len(report.Findings) > 0 || report.FailedCount > 0) {
				t.Errorf("the repaired twin:\n%s", engine.Text(report, engine.Names{}))
			}
		})
	}
}
