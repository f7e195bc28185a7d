package executor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestDrainPart: a drain admits no operation, wakes the busy ones, and ends when the last one has left. If the results
// of busy operations are lost, it never ends.
func TestDrainPart(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time left"))
	stopped := make(chan struct{})
	close(stopped)

	var idle drain
	if err := idle.wait(ended, nil); err != nil {
		t.Errorf("without a busy operation: %v", err)
	}

	var d drain
	a, b := &news{}, &news{}
	if d.hasBegun() || !d.enter(a) || !d.enter(a) || !d.enter(b) {
		t.Error("before a drain, an operation is refused")
	}
	d.leave(b)
	if err := d.wait(ended, nil); err == nil ||
		!strings.HasSuffix(err.Error(), "the calls of 1 operations: no time left") {
		t.Errorf("with a busy operation: %v", err)
	}
	if !d.hasBegun() || d.enter(b) {
		t.Error("during a drain, an operation is admitted")
	}
	if !a.take() || b.take() {
		t.Error("not exactly the busy operations are woken")
	}
	d.leave(b)
	d.leave(a)
	if err := d.wait(ended, stopped); err != nil {
		t.Errorf("after the last one has left: %v", err)
	}

	var lost drain
	lost.enter(a)
	lost.begin(true)
	lost.leave(a)
	if err := lost.wait(t.Context(), stopped); !errors.Is(err, errEnded) {
		t.Errorf("after the results are lost: %v", err)
	}
}
