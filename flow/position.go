package flow

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Positions stores where durable fibers are. Implementations may merge a save with other writes to the same object.
// They are called from workers, at most one call per key at a time.
type Positions interface {
	// Load returns the last position saved for key; false if there is none.
	Load(ctx context.Context, key string) (Position, bool, error)
	// Save replaces the position of key. An error that matches ErrOvertaken says that it has not, since what is there
	// is newer than what the fiber has loaded.
	Save(ctx context.Context, key string, p Position) error
	// Clear removes the position of key; an absent one is no error.
	Clear(ctx context.Context, key string) error
}

// Position is where a fiber is: all of it that survives a restart. It is small (a few hundred bytes and the checkpoint)
// and has a stable JSON form. Times are wall-clock. It can be a field of a status: controller-gen makes a schema of it
// that keeps all of it. Left, Last, Returns, Back, Else, TimedOut and Trace may be absent.
type Position struct {
	Flow       string `json:"flow"`
	Version    int    `json:"version,omitempty"`
	Generation int64  `json:"generation,omitempty"` // of the object worked on, as given to Start
	Step       string `json:"step"`                 // the step to run next, its path within the flow
	Reached    string `json:"reached,omitempty"`    // the furthest step, beyond Step, that a run has come to: for Undo
	Reason     string `json:"reason,omitempty"`     // why it was saved: a wait as in Info.Why, save, failed, cancelled
	Attempt    int    `json:"attempt,omitempty"`    // runs of Step before this one

	// begun is when the fiber was started first.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Begun time.Time `json:"begun"`
	// started is when the step was entered first, or will be after a delay.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Started time.Time `json:"started"`
	// wake is the time before which the step does not run.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Wake time.Time `json:"wake,omitzero"`
	// deadline is that of the await or suspension; it goes on counting.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Deadline time.Time `json:"deadline,omitzero"`
	// checkpoint is what steps keep with SetCheckpoint: any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`

	Token string `json:"token"`           // identifies this run; the root of idempotency keys
	Ended bool   `json:"ended,omitempty"` // the run is over; kept for Undo, never resumed
	// At most about 1 KB of an error: how the run ended, or what led to Step through Else or OnError.
	Err      string `json:"error,omitempty"`
	TimedOut bool   `json:"timedOut,omitempty"` // the error matches ErrTimeout

	Left *Place  `json:"left,omitempty"` // the step whose Delay leads to Step; until then its deadline counts
	Last bool    `json:"last,omitempty"` // with Left: after the delay nothing is left to run, and Step is that of Left
	Back []Place `json:"back,omitempty"` // in or before a detour: where it returns to, to the last one first
	Else string  `json:"else,omitempty"` // where the wait leads to if the deadline of the step passes before

	Returns bool `json:"returns,omitempty"` // with Left: a detour, which leads back to Step when the delay is over

	// Trace is the span of the fiber, as a traceparent of W3C Trace Context, if it is sampled: that of the fiber that
	// goes on here links to it. It is a hint, which Positions may lose.
	Trace string `json:"trace,omitempty"`
}

// Place is a step under way.
type Place struct {
	Step    string `json:"step"`
	Attempt int    `json:"attempt,omitempty"`

	// started is when the step was entered first.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Started time.Time `json:"started"`
}

// DeepCopyInto copies the position, as generated code of API types expects it.
func (p *Position) DeepCopyInto(out *Position) {
	*out = *p
	out.Checkpoint = slices.Clone(p.Checkpoint)
	out.Back = slices.Clone(p.Back)
	if p.Left != nil {
		left := *p.Left
		out.Left = &left
	}
}

// DeepCopy returns a copy.
func (p *Position) DeepCopy() *Position {
	if p == nil {
		return nil
	}
	out := new(Position)
	p.DeepCopyInto(out)
	return out
}
