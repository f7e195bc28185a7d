// Package inspect has the snapshots of a running program that /debug and the console show: its sources and observers,
// its controllers, and the runtime as a whole.
//
// A part of the program returns a snapshot of itself in one call. A snapshot is plain data. Its JSON is the format of
// the pages below /debug, and its String method returns their text.
package inspect

import "time"

// Runtime is the state of a runtime, as its pages show it.
type Runtime struct {
	// Phase is the phase, such as "ready", or a message that names the current leader.
	Phase string `json:"phase"`
	// Problems are the reasons why /healthz fails. Lacking are the reasons why the process does not do all of its work.
	Problems []string `json:"problems"`
	// Conditions are the resources that the API server does not serve or forbids to this program. A restart does not
	// change that, so /healthz lists them and still returns 200.
	Conditions []string `json:"conditions"`
	Lacking    []string `json:"lacking"`
	// Sources are the resources that observers, reconcilers and clients watch.
	Sources     []Source     `json:"sources"`
	Controllers []Controller `json:"controllers"`
	// FlowsBlockedSince is flow.Engine.BlockedSince of the runtime's engine. It is nil if the engine is not blocked.
	FlowsBlockedSince *time.Time `json:"flowsBlockedSince,omitempty"`
}
