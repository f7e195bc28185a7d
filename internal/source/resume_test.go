package source

import (
	"errors"
	"testing"
	"time"
)

// TestResumption ends at its target, and the last of its short watches leads to a list.
func TestResumption(t *testing.T) {
	t.Parallel()
	pos := &position{}
	pos.start("5")
	var r resumption
	if r.isDue() || r.needsTarget() || r.isReached(pos) || r.watchEnded(errEnded) {
		t.Error("a resumption is due before it began")
	}
	r.begin()
	if !r.isDue() || !r.needsTarget() || r.isReached(pos) {
		t.Error("a resumption is over without a target")
	}
	if r.setTarget("7"); r.needsTarget() || r.isReached(pos) {
		t.Error("the target is reached too early")
	}
	var asked []time.Duration
	for _, err := range []error{errLifetime, errors.New("broken"), errEnded} {
		next, limit := r.lifetime()
		if limit <= next {
			t.Errorf("a watch of %v is closed after %v", next, limit)
		}
		asked = append(asked, next)
		if list := r.watchEnded(err); list != (err == errEnded) {
			t.Errorf("the watch that ended with %q leads to a list: %v", err, list)
		}
	}
	if asked[0] != resumeWatches[0] || asked[1] != resumeWatches[1] || asked[2] != resumeWatches[1] {
		t.Errorf("watches of %v", asked)
	}
	if pos.advance([]byte("8")); !r.isReached(pos) {
		t.Error("a later version does not reach the target")
	}
	if r.end(); r.isDue() || r.isReached(pos) {
		t.Error("a resumption does not end")
	}
}

// TestStuck: the fourth failure at one version counts as stuck if the server answers. A new version restarts the count.
func TestStuck(t *testing.T) {
	t.Parallel()
	var h history
	broken := &ProtocolError{What: "x"}
	for n := range 3 {
		if h.isStuck(broken, []byte("5")) {
			t.Errorf("stuck after %d failures", n+1)
		}
	}
	if h.isStuck(errors.New("no connection"), []byte("5")) {
		t.Error("a fault of the connection counts")
	}
	h.stayedOpen()
	if !h.isStuck(ErrStalled, []byte("5")) {
		t.Error("not stuck after four failures")
	}
	if h.isStuck(&APIError{Code: 503}, []byte("6")) {
		t.Error("failures at another version count")
	}
}
