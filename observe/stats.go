package observe

import "sync/atomic"

// stats count the outcomes of the events of one observer.
type stats struct {
	handled, failed, retried atomic.Uint64
	busy                     atomic.Int64 // nanoseconds
}

func (s *stats) count(o outcome) {
	s.busy.Add(int64(o.took))
	switch {
	case o.err == nil:
		s.handled.Add(1)
	case o.final:
		s.failed.Add(1)
	default:
		s.retried.Add(1)
	}
}
