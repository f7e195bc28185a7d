package engine

import (
	"context"
	"time"
)

// A Driver plays schedules. Play is safe for concurrent use. The run may end as soon as it is quiet and its state
// equals want, which is nil for a reference. An error means that the schedule could not be judged; it says why, and
// what the user can do. If it is the cause of the end of ctx, the outcome is that until then, or nil.
type Driver interface {
	Play(ctx context.Context, p Plan, want *Want) (*Outcome, error)
}

// An Outcome is what one run of a schedule led to.
type Outcome struct {
	Trace []Event `json:"trace"`
	// End holds the normalized objects at the end, by their canonical reference. It is nil if nothing but Exits is known,
	// since the panic of the subject has ended the whole run.
	End State `json:"end"`
	// Reached has an element for each fault of the plan: whether its moment came.
	Reached []bool `json:"reached,omitempty"`
	// Stuck is set if a step of the workload was not reached.
	Stuck *Stuck `json:"stuck,omitempty"`
	// Quiet reports whether the system came to rest. If it did not, Busy says what it repeated.
	Quiet bool     `json:"quiet"`
	Busy  []Repeat `json:"busy,omitempty"`
	// Broken are violated invariants, in the order in which they were first seen.
	Broken []Broken `json:"broken,omitempty"`
	// Unserved are the resources that conditions and invariants named and the API server never served. Only a run of all
	// steps has them.
	Unserved []string `json:"unserved,omitempty"`
	// Exits are the ends of the subject that no fault of the plan demands.
	Exits []string `json:"exits,omitempty"`
	// Calls counts the calls to services outside the cluster that must not be repeated. A key is method, URL and body,
	// with a space between them.
	Calls map[string]int `json:"calls,omitempty"`
	// Watched are the kinds that the subject watches, and Leads reports whether it uses a lock for leader election.
	Watched []string `json:"watched,omitempty"`
	Leads   bool     `json:"leads,omitempty"`
	// Values are the texts of all fields, and Keys those that identify elements of lists. Only a reference has them.
	Values Values `json:"values,omitempty"`
	Keys   Keys   `json:"keys,omitempty"`
	// Warnings are facts about the run that the report shows once.
	Warnings []string `json:"warnings,omitempty"`
	// Output has the last lines that the subject printed. Only a run without faults that fails has it.
	Output string `json:"output,omitempty"`
	// Elapsed is the duration of the run on its own clock.
	Elapsed time.Duration `json:"elapsed"`
}

// Stuck is a step of the workload that was not reached.
type Stuck struct {
	Step   int           `json:"step"` // counted from 0
	Name   string        `json:"name"`
	Reason string        `json:"reason"`
	At     time.Duration `json:"at"` // when it was given up
}

// Repeat is a request that the subject repeats while nothing changes.
type Repeat struct {
	Request string        `json:"request"`
	Times   int           `json:"times"`
	Within  time.Duration `json:"within"`
}

// Broken is a violated invariant.
type Broken struct {
	At     time.Duration `json:"at"`
	Reason string        `json:"reason"`
}

// Event is one line of a trace: a write, the change that it led to, or both.
type Event struct {
	At     time.Duration `json:"at"`
	Actor  string        `json:"actor"` // subject, cluster, workload, outside
	Write  Moment        `json:"write,omitzero"`
	Status int           `json:"status,omitempty"` // of the answer; 0 if there was none
	Reason string        `json:"reason,omitempty"` // the message of an answer that refuses the write
	// Changed is the change of state, if there was one, and Diff its first differences.
	Changed Moment   `json:"changed,omitzero"`
	Diff    []string `json:"diff,omitempty"`
	// Fault says which fault was played here.
	Fault string `json:"fault,omitempty"`
}

// State is a set of normalized objects by canonical reference. Several objects may share one reference, if their names
// are generated; they are in the order of their content.
type State map[string][]map[string]any
