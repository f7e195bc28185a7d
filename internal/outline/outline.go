// Package outline describes flows without their code, for the console.
package outline

import "time"

// Flow describes a flow without its code, for display.
type Flow struct {
	Name string
	// Steps are all steps in the order of the definition, with groups flattened and detours included.
	Steps []Step
}

// Step is one step of a flow. It refers to other steps by their paths.
type Step struct {
	Path string // within the flow, such as "group/step"
	Fork bool   // the step runs children, which its code chooses, and waits for them
	// Detour reports that the step is outside the line. It returns to the step that went there.
	Detour bool
	// Next is the following step; empty at the end of the line and for a detour.
	Next string
	// OnError is the step that follows when this one fails for good. If it is empty, the fiber fails.
	OnError string
	// To are the further steps that the code may go to, as declared with the option To.
	To       []string
	Saves    bool          // the position is saved before the step runs
	Undoes   bool          // the step has an Undo
	Deadline time.Duration // 0: none
}
