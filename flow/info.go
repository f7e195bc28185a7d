package flow

import "time"

// Info is a picture of a live fiber.
type Info struct {
	ID       uint64 `json:"id"`
	Parent   uint64 `json:"parent,omitzero"` // of the fiber that forked it
	Flow     string `json:"flow"`
	Key      string `json:"key,omitempty"`
	Group    string `json:"group,omitempty"`
	Subgroup string `json:"subgroup,omitempty"`
	Path     string `json:"path"` // where it is
	// Step is that within its own flow, without those that forked it; empty before it has entered one.
	Step     string        `json:"step,omitempty"`
	Epoch    uint64        `json:"epoch"`
	Status   Status        `json:"status"`
	Why      string        `json:"why,omitempty"`  // parked: gate, delay, retry, suspend, await, fork, load
	Until    time.Time     `json:"until,omitzero"` // parked: when it is looked at next without an event
	Attempt  int           `json:"attempt"`
	Began    time.Time     `json:"began"`
	Entered  time.Time     `json:"entered"`  // its step, first
	Since    time.Time     `json:"since"`    // in this status
	For      time.Duration `json:"for"`      // since then
	Stopping bool          `json:"stopping"` // cancelled, and its code has not returned
	Children int           `json:"children"` // alive
	Dropped  int           `json:"dropped"`  // entries that the trail has lost
	Trail    Trail         `json:"trail"`

	def *def
}
