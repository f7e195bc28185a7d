package conditions_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead/conditions"
)

func at(generation int64) *metav1.ObjectMeta { return &metav1.ObjectMeta{Generation: generation} }

// show is the conditions in short: type, status, reason, generation, and seconds since the transition.
func show(all []metav1.Condition) (out []string) {
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s=%s %s %q of %d, %ds", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration,
			int(time.Since(c.LastTransitionTime.Time).Seconds())))
	}
	return out
}

// TestHistory is the life of an object: each step says something, a second after the one before.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all []metav1.Condition
		for _, step := range []struct {
			reason     string
			generation int64
			say        func(*conditions.Set)
			changed    bool
			want       []string
		}{
			{"nothing is said", 1, func(*conditions.Set) {}, true, []string{`Ready=True AsAskedFor "" of 1, 0s`}},
			{"something is not known", 1, func(s *conditions.Set) {
				s.Unknown("Addressed", "Waiting", "for %s", "the pool")
			}, true, []string{
				`Ready=Unknown Waiting "Addressed: for the pool" of 1, 0s`,
				`Addressed=Unknown Waiting "for the pool" of 1, 0s`,
			}},
			{"the same again", 1, func(s *conditions.Set) {
				s.Unknown("Addressed", "Waiting", "for %s", "the pool")
			}, false, []string{
				`Ready=Unknown Waiting "Addressed: for the pool" of 1, 1s`,
				`Addressed=Unknown Waiting "for the pool" of 1, 1s`,
			}},
			{"another message is no transition", 1, func(s *conditions.Set) {
				s.Unknown("Addressed", "Waiting", "still")
			}, true, []string{
				`Ready=Unknown Waiting "Addressed: still" of 1, 2s`, `Addressed=Unknown Waiting "still" of 1, 2s`,
			}},
			{"False is worse than Unknown, and of equals the first gives the reason", 2, func(s *conditions.Set) {
				s.Unknown("Programmed", "Waiting", "not yet")
				s.False("Addressed", "Exhausted", "no address is left.")
				s.False("Routed", "NoRoute", "")
			}, true, []string{
				`Ready=False Exhausted "Addressed: no address is left; Routed: NoRoute" of 2, 0s`,
				`Addressed=False Exhausted "no address is left." of 2, 0s`,
				`Programmed=Unknown Waiting "not yet" of 2, 0s`, `Routed=False NoRoute "" of 2, 0s`,
			}},
			{"what is not said any more is gone, and what is wrong is not ready", 2, func(s *conditions.Set) {
				s.True("Addressed", "Assigned", "")
				s.Reconciling("Rolling", "2 of 3")
			}, true, []string{
				`Ready=False Rolling "Reconciling: 2 of 3" of 2, 1s`, `Addressed=True Assigned "" of 2, 0s`,
				`Reconciling=True Rolling "2 of 3" of 2, 0s`,
			}},
			{"what was looked at before says nothing of what is newer", 1, func(s *conditions.Set) {
				s.False("Addressed", "Exhausted", "")
			}, false, []string{
				`Ready=False Rolling "Reconciling: 2 of 3" of 2, 2s`, `Addressed=True Assigned "" of 2, 1s`,
				`Reconciling=True Rolling "2 of 3" of 2, 1s`,
			}},
			{"others keep theirs, Ready is believed, and the last word counts", 3, func(s *conditions.Set) {
				s.Keep("Reconciling")
				s.Stalled("Broken", "x")
				s.True("Stalled", "Fine", "")
				s.Unknown(conditions.Ready, "AskMe", "later")
			}, true, []string{
				`Ready=Unknown AskMe "later" of 3, 0s`, `Reconciling=True Rolling "2 of 3" of 2, 2s`,
				`Stalled=True Fine "" of 3, 0s`,
			}},
		} {
			s := conditions.Of(at(step.generation))
			step.say(s)
			if changed := s.Into(&all); changed != step.changed {
				t.Errorf("%s: changed is %v", step.reason, changed)
			}
			if diff := cmp.Diff(step.want, show(all)); diff != "" {
				t.Errorf("%s: %s", step.reason, diff)
			}
			if s.Into(&all) {
				t.Errorf("%s: it changes when it is said again", step.reason)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestServerTakesIt: whatever is said, the API server accepts it.
func TestServerTakesIt(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"Fine": "Fine", "with spaces": "WithSpaces", "": "Unspecified", "42": "Unspecified", "9lives": "Lives",
		"trailing:": "Trailing", "größe": "GrE", "a/b-c": "ABC", strings.Repeat("long ", 1000): "",
	} {
		s := conditions.Of(at(1))
		s.False("Done", reason, "%s", strings.Repeat("ä", 20000)+"\xff")
		var all []metav1.Condition
		s.Into(&all)
		if errs := metav1validation.ValidateConditions(all, field.NewPath("conditions")); len(errs) > 0 {
			t.Errorf("%.20q: %v", reason, errs.ToAggregate())
		}
		if want != "" && all[0].Reason != want {
			t.Errorf("%q becomes %q, not %q", reason, all[0].Reason, want)
		}
		if n := len(all[0].Message); n > 32768 {
			t.Errorf("the message has %d bytes", n)
		}
	}
}
