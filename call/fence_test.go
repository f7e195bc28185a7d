package call_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/call"
)

// TestFence: leave is asked for before each try, not once for all, since a back-off may last longer than the leave.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]int{"Never": 0, "Once": 1, "Twice": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, status(503, "ServiceUnavailable", "come back"))
				over, asked := errors.New("somebody else leads"), 0
				_, err := call.Do(t.Context(), b.client, get(), call.Policy{Fence: func() error {
					if asked++; asked > leave {
						return over
					}
					return nil
				}})
				if !errors.Is(err, over) || len(b.seen()) != leave {
					t.Errorf("%d requests, and %v", len(b.seen()), err)
				}
				asked = 0
				for _, err = range call.Pages(t.Context(), b.client, call.Request{Verb: call.VerbList, Resource: configMaps},
					call.Policy{
						Fence: func() error { asked++; return over },
					}) {
				}
				if !errors.Is(err, over) || len(b.seen()) != leave || asked != 1 {
					t.Errorf("a list: %d requests, asked %d times, and %v", len(b.seen())-leave, asked, err)
				}
			})
		})
	}
}
