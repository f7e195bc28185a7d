package call_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/call"
)

// TestFence: the fence is asked before each try, since a back-off may outlast a permit.
func TestFence(t *testing.T) {
	t.Parallel()
	for name, permits := range map[string]int{"Never": 0, "Once": 1, "Twice": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, call.Options{}, status(503, "ServiceUnavailable", "come back"))
				over, asked := errors.New("another process leads"), 0
				_, err := call.Do(t.Context(), b.client, get(), call.Policy{Fence: func() error {
					if asked++; asked > permits {
						return over
					}
					return nil
				}})
				if !errors.Is(err, over) || len(b.seen()) != permits {
					t.Errorf("%d requests, and %v", len(b.seen()), err)
				}
				asked = 0
				for _, err = range call.Pages(t.Context(), b.client, call.Request{Verb: call.VerbList, Resource: configMaps},
					call.Policy{
						Fence: func() error { asked++; return over },
					}) {
				}
				if !errors.Is(err, over) || len(b.seen()) != permits || asked != 1 {
					t.Errorf("a list: %d requests, %d checks of the fence, and %v", len(b.seen())-permits, asked, err)
				}
			})
		})
	}
}
