package flow

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Positions stores the positions of durable fibers. An implementation may merge a save with other writes to the same
// object. Workers call it, with at most one call per key at a time.
type Positions interface {
	// Load returns the last position saved for key. It returns false if there is none.
	Load(ctx context.Context, key string) (Position, bool, error)
	// Save replaces the position of key. If the stored position is newer than the one that the fiber has loaded, Save
	// does not write and returns an error that matches ErrOvertaken.
	Save(ctx context.Context, key string, p Position) error
	// Clear removes the position of key. Removing an absent position is not an error.
	Clear(ctx context.Context, key string) error
}

// Position is the part of a fiber that survives a restart. It is small: a few hundred bytes and the checkpoint. Its
// JSON form is stable. Times are wall-clock times. A Position can be a field of a status: controller-gen generates a
// schema that preserves all of it. Left, Last, Returns, Back, Else, TimedOut and Trace may be absent.
type Position struct {
	Flow       string `json:"flow"`
	Version    int    `json:"version,omitempty"`
	Generation int64  `json:"generation,omitempty"` // of the object, from StartOptions
	Step       string `json:"step"`                 // path of the step to run next, within the flow
	Reached    string `json:"reached,omitempty"`    // furthest step begun, if beyond Step; for Undo
	Reason     string `json:"reason,omitempty"`     // why it was saved: a wait as in Info.Why, save, failed, cancelled
	Attempt    int    `json:"attempt,omitempty"`    // runs of Step before the next one

	// begun is when the fiber was first started.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Begun time.Time `json:"begun"`
	// started is when the step was first entered or, during a delay, when it will be.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Started time.Time `json:"started"`
	// wake is the earliest time at which the step runs.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Wake time.Time `json:"wake,omitzero"`
	// deadline is that of the await or suspension. It keeps counting across restarts.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Deadline time.Time `json:"deadline,omitzero"`
	// checkpoint is the value of SetCheckpoint, any JSON.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`

	Token string `json:"token"`           // identifies this run; part of its idempotency keys
	Ended bool   `json:"ended,omitempty"` // the run has ended: kept for Undo, never resumed
	// Err is at most about 1 KB of an error text: how the run ended, or the error that led to Step through Else or
	// OnError.
	Err      string `json:"error,omitempty"`
	TimedOut bool   `json:"timedOut,omitempty"` // the error matches ErrTimeout

	Left *Place  `json:"left,omitempty"` // the step whose Delay leads to Step; its deadline counts during the delay
	Last bool    `json:"last,omitempty"` // with Left: no step follows the delay, and Step is that of Left
	Back []Place `json:"back,omitempty"` // the steps to return to from detours; the last one first
	Else string  `json:"else,omitempty"` // the step that follows if the deadline of the step passes during the wait

	Returns bool `json:"returns,omitempty"` // with Left: Left is a detour, which returns to Step after the delay

	// Trace is the span of the fiber, as a W3C traceparent, if it is sampled. The span of the fiber that resumes here
	// links to it. Positions may lose it.
	Trace string `json:"trace,omitempty"`
}

// Place is a step that has been entered.
type Place struct {
	Step    string `json:"step"`
	Attempt int    `json:"attempt,omitempty"`

	// started is when the step was first entered.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	Started time.Time `json:"started"`
}

// DeepCopyInto copies the position into out, as generated deep copy code expects.
func (p *Position) DeepCopyInto(out *Position) {
	*out = *p
	out.Checkpoint = slices.Clone(p.Checkpoint)
	out.Back = slices.Clone(p.Back)
	if p.Left != nil {
		left := *p.Left
		out.Left = &left
	}
}

// DeepCopy returns a copy of the position.
func (p *Position) DeepCopy() *Position {
	if p == nil {
		return nil
	}
	out := new(Position)
	p.DeepCopyInto(out)
	return out
}
