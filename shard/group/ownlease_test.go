package group

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/leasing"
)

// TestLateRenewal checks that the late response to a renewal does not clear the error of one that was sent after it.
func TestLateRenewal(t *testing.T) {
	withServer(t, func(t *testing.T, s *apiserver.Server, c *leasing.Client) {
		var mu sync.Mutex
		var states []string // of the member
		opt := options(t)
		l := &ownLease{
			opt: opt, clock: realClock, log: discardLog, view: newView(time.Now), census: &census{}, client: c,
			name: leaseName(opt.Name, "x"), renewed: make(chan struct{}), holdings: func() *holdings { return nil },
			ready:   func() string { return "{}" },
			renewal: leasing.Renewal{Clock: realClock, Bound: opt.Renew},
			setError: func(_ string, err error) {
				mu.Lock()
				defer mu.Unlock()
				state := "renewed"
				if errors.Is(err, ErrForbidden) {
					state = "forbidden"
				} else if err != nil {
					state = err.Error()
				}
				states = slices.Compact(append(states, state))
			},
		}
		if err := l.create(t.Context(), "uid"); err != nil {
			t.Fatal(err)
		}
		var ended sync.WaitGroup
		ended.Go(func() { _ = l.renew(t.Context()) })
		defer ended.Wait()
		if err := l.awaitHold(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(opt.period / 2) // between two renewals
		patches := apiserver.Match{Resource: "leases", Verb: "patch"}
		gate := apiserver.NewGate()
		held := s.On(patches, apiserver.HoldResponse(gate))
		time.Sleep(opt.period)
		held.Off()
		refused := s.On(patches, apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
		time.Sleep(opt.period)
		if held.Hits() != 1 || refused.Hits() == 0 {
			t.Fatalf("%d renewals were delayed, %d refused: %q", held.Hits(), refused.Hits(), states)
		}
		gate.Open()
		time.Sleep(opt.period / 4)
		refused.Off()
		time.Sleep(2 * opt.period)
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]string{"renewed", "forbidden", "renewed"}, states); diff != "" {
			t.Errorf("states, -want +got:\n%s", diff)
		}
		l.remove(t.Context())
	})
}
