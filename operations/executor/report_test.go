package executor

import (
	"testing"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// TestWaitOf: an operation has one reason to wait at a time. The order is: another operation, Webhooks, credentials,
// shares.
func TestWaitOf(t *testing.T) {
	t.Parallel()
	ahead := &course.Predecessor{Op: locking(1, 2), Resource: resourceOf(2)}
	tests := map[string]struct {
		behind          *course.Predecessor
		decision        course.Decision
		share           string
		reason, message string
	}{
		"Nothing": {reason: v1alpha1.ReasonInProgress},
		"Lock": {
			behind: ahead, decision: course.Decision{Missing: []string{"a"}}, reason: v1alpha1.ReasonWaitingForLock,
			message: "waiting for the end of " + ahead.String(),
		},
		"Missing": {
			decision: course.Decision{Missing: []string{"a"}, Withheld: []string{"b"}}, reason: v1alpha1.ReasonWaitingForWebhook,
			message: "waiting for webhook a, which does not exist in namespace ns",
		},
		"Quarantined": {
			decision: course.Decision{Missing: []string{"bomb"}}, reason: v1alpha1.ReasonWaitingForWebhook,
			message: "waiting for webhook bomb, which is quarantined: it has to be changed",
		},
		"Several": {
			decision: course.Decision{Missing: []string{"a", "bomb"}}, reason: v1alpha1.ReasonWaitingForWebhook,
			message: "waiting for webhooks a, bomb, which do not exist in namespace ns",
		},
		"Withheld": {
			decision: course.Decision{Withheld: []string{"b", "c"}}, share: shareWrites, reason: v1alpha1.ReasonNotReleased,
			message: "waiting for credentials: b; c",
		},
		"Share": {
			share: shareCalls, reason: v1alpha1.ReasonWaitingForShare,
			message: "waiting for the share of namespace ns of calls per second",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := waitOf("ns", tc.behind, tc.decision, tc.share, func(_, name string) bool { return name == "bomb" })
			if got.reason != tc.reason || got.message != tc.message {
				t.Errorf("got %s %q, want %s %q", got.reason, got.message, tc.reason, tc.message)
			}
		})
	}
}
