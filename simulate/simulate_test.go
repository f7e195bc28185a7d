package simulate_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate"
	"github.com/fairlead-io/fairlead/simulate/internal/toys"
)

// Each planted bug is found in few schedules, with the same verdict in each run of a seed. Its repaired twin has no
// finding in 100 schedules, or in 10,000 with FAIRLEAD_SOAK=1.
func TestPlantedBugs(t *testing.T) {
	for _, bug := range toys.Bugs() {
		t.Run(bug.Name, func(t *testing.T) {
			report, err := simulate.Search(t, "bug", bug.Subject(false), append(bug.Parts, simulate.Schedules(40))...)
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
				if bug.Verdict != engine.Exited { // it ends this process
					sameVerdicts(t, bug, f.Plan)
				}
			}
			repaired(t, bug)
		})
	}
}

// repaired checks that a repaired bug has no finding, and hardly any suspicion that does not repeat. A search ends when
// it has played all pairs of faults. Further searches with other seeds play the rest of the schedules.
func repaired(t *testing.T, bug toys.Bug) {
	t.Helper()
	schedules := 100
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		schedules = 10_000
	}
	for s := uint64(1); schedules > 0; s++ {
		parts := append(slices.Clone(bug.Parts), simulate.Schedules(schedules), simulate.Seed(s), simulate.Until(time.Hour))
		report, err := simulate.Search(t, "twin", bug.Subject(true), parts...)
		if err != nil {
			t.Fatal(err)
		}
		if report == nil { // in a child process of the search
			return
		}
		if len(report.Findings) > 0 || report.Unconfirmed > report.Played/10 || report.FailedCount > 0 ||
			report.Played == 0 {
			t.Fatalf("the repaired twin with seed %d:\n%s", s, engine.Text(report, engine.Names{}))
		}
		schedules -= report.Played
	}
}

// sameVerdicts checks that the verdict of a seed is the same in each run. like has the names that the subject makes up.
// FAIRLEAD_SEEDS is the number of schedules, which are played twice.
func sameVerdicts(t *testing.T, bug toys.Bug, like engine.Plan) {
	t.Helper()
	play := func(seed uint64, faults ...engine.Fault) *engine.Outcome {
		p := engine.Plan{Seed: seed, Faults: faults, Names: like.Names, Varies: like.Varies}
		return simulate.Play(t, bug.Subject(false), p, bug.Parts...)
	}
	ref := engine.NewReference([]*engine.Outcome{play(1), play(2)}, nil)
	var kinds []engine.FaultKind
	for _, class := range engine.ClassNames() {
		kinds = append(kinds, engine.Classes[class]...)
	}
	plans := engine.Single(ref, kinds, 20*time.Second, nil)
	seed.Play(t, 3, func(t *testing.T, s uint64) {
		p := plans[s%uint64(len(plans))]
		a, b := engine.Judge(ref, play(s, p.Faults...)), engine.Judge(ref, play(s, p.Faults...))
		if diff := cmp.Diff(a, b, cmpopts.IgnoreFields(engine.Symptom{}, "Text")); diff != "" { // it may have numbers
			t.Errorf("two runs with %s differ (-first +second):\n%s", p, diff)
		}
	})
}
