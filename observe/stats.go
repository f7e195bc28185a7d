package observe

import (
	"sync/atomic"
	"time"
)

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

// Stats are the counts of one observer since its declaration.
type Stats struct {
	Handled uint64        `json:"handled"` // events handled, or excluded by its mask
	Failed  uint64        `json:"failed"`  // events given up
	Retried uint64        `json:"retried"` // failed calls that were repeated
	Busy    time.Duration `json:"busy"`    // time spent in the observer, in nanoseconds
	Lag     int           `json:"lag"`     // events, or keys, not delivered yet
}

func (s *Stats) add(o Stats) {
	s.Handled += o.Handled
	s.Failed += o.Failed
	s.Retried += o.Retried
	s.Busy += o.Busy
	s.Lag += o.Lag
}
