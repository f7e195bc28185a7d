package controller

import (
	"errors"
	"testing"

	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// TestFenceWithoutTerm: without an election the fence lets every request pass. With an election, none passes before the
// first term.
func TestFenceWithoutTerm(t *testing.T) {
	t.Parallel()
	var none *election
	if err := none.fence(); err != nil || none.term(t.Context()).Done() != nil {
		t.Errorf("without an election: %v", err)
	}
	if err := (&election{}).fence(); !errors.Is(err, lease.ErrNotLeading) {
		t.Errorf("before the first term: %v", err)
	}
}
