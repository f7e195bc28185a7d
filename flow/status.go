package flow

import (
	"fmt"
	"slices"
)

// Mode says what Start does when another fiber of the key is alive.
type Mode uint8

const (
	// Preempt cancels the live fiber with cause ErrPreempted, waits until its code has returned, then starts. If
	// several fibers wait, only the last one runs. The others end as cancelled.
	Preempt Mode = iota
	// Coalesce waits until the live fiber has finished, then starts. If several fibers wait, only the last one runs.
	// The others end as cancelled with cause ErrCoalesced.
	Coalesce
	// SkipIfBusy starts no fiber and returns ErrBusy.
	SkipIfBusy
)

// Status is the state of a fiber.
type Status uint8

// The statuses.
const (
	Ready     Status = iota + 1 // waiting for a worker
	Running                     // a worker runs its code
	Parked                      // waiting without a worker
	Completed                   // ended: ran to the end
	Failed                      // ended: a step failed or panicked
	Cancelled                   // ended: cancelled, preempted or closed
	Moved                       // ended: another process continues it, see ErrMoved
)

// Ended reports whether the fiber has ended.
func (s Status) Ended() bool { return s >= Completed }

var statusNames = [...]string{"", "ready", "running", "parked", "completed", "failed", "cancelled", "moved"}

func (s Status) String() string { return statusNames[s] }

// MarshalText implements [encoding.TextMarshaler].
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Status) UnmarshalText(text []byte) error {
	i := slices.Index(statusNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("cannot read status: %q is none", text)
	}
	*s = Status(i)
	return nil
}
