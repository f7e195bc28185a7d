package reconcile

import (
	"errors"
	"testing"

	"github.com/fairlead-io/fairlead/internal/inspect"
)

// TestStateOf: the phase decides first, then the lists, then the leadership.
func TestStateOf(t *testing.T) {
	t.Parallel()
	listed := intakeState{primary: &openWatch{}, synced: true}
	for _, tc := range []struct {
		phase   phase
		watches intakeState
		leads   bool
		want    inspect.State
	}{
		{phase{}, intakeState{}, true, inspect.StateNew},
		{phase{running: true}, intakeState{}, true, inspect.StateListing},
		{phase{running: true}, intakeState{primary: &openWatch{}}, true, inspect.StateListing},
		{phase{running: true}, listed, false, inspect.StateStandby},
		{phase{running: true}, listed, true, inspect.StateRunning},
		{phase{running: true, stopping: true}, listed, true, inspect.StateStopping},
		{phase{problem: errors.New("no such kind")}, intakeState{}, true, inspect.StateBlocked},
		{phase{ended: true, problem: errors.New("no such kind")}, intakeState{}, true, inspect.StateStopped},
	} {
		if got := stateOf(tc.phase, tc.watches, tc.leads); got != tc.want {
			t.Errorf("%+v, leads: %v: got %s, want %s", tc.phase, tc.leads, got, tc.want)
		}
	}
}
