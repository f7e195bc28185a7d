package flow

import "time"

// Info is a snapshot of a fiber.
type Info struct {
	ID       uint64 `json:"id"`
	Parent   uint64 `json:"parent,omitzero"` // the ID of the fiber that forked this one
	Flow     string `json:"flow"`
	Key      string `json:"key,omitempty"`
	Group    string `json:"group,omitempty"`
	Subgroup string `json:"subgroup,omitempty"`
	Path     string `json:"path"` // of the step, from the root flow on
	// Step is the path of the step within its own flow, without the forks above it. It is empty before the first step.
	Step     string        `json:"step,omitempty"`
	Epoch    uint64        `json:"epoch"`
	Status   Status        `json:"status"`
	Why      string        `json:"why,omitempty"`  // if parked: gate, delay, retry, suspend, await, fork or load
	Until    time.Time     `json:"until,omitzero"` // if parked: time of the next check without an event
	Attempt  int           `json:"attempt"`
	Began    time.Time     `json:"began"`
	Entered  time.Time     `json:"entered"`  // when the step was first entered
	Since    time.Time     `json:"since"`    // when the status last changed
	For      time.Duration `json:"for"`      // time since then
	Stopping bool          `json:"stopping"` // cancelled, but its code has not returned
	Children int           `json:"children"` // number of live children
	Dropped  int           `json:"dropped"`  // number of entries that the trail has dropped
	Trail    Trail         `json:"trail"`

	def *def
}
