package pack

import "sync"

// rounds counts the rounds that run in the background. The lock of its owner guards it.
type rounds struct {
	running int
	idle    sync.Cond // signaled when running is 0; a WaitGroup does not allow Wait while rounds start
	closed  bool      // no further round may begin

	packing    bool // a round packs the queue and the nursery
	compacting bool
}

// begin counts a round.
func (r *rounds) begin() { r.running++ }

func (r *rounds) end() {
	if r.running--; r.running == 0 {
		r.idle.Broadcast()
	}
}

// wait waits until no round runs. It releases the lock meanwhile.
func (r *rounds) wait() {
	for r.running > 0 {
		r.idle.Wait()
	}
}
