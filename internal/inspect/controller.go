package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State is the state of a controller.
type State string

// The states of a controller.
const (
	StateNew      State = "not started"
	StateBlocked  State = "cannot start"       // Controller.Error has the reason; it is tried again
	StateAbsent   State = "waits for its kind" // an optional kind that is not served; Controller.WaitsFor says which
	StateListing  State = "listing"            // Controller.WaitsFor lists the missing watches and why
	StateStandby  State = "standby"            // another process leads; Controller.Error says why the leader is unknown
	StateRunning  State = "running"
	StateStopping State = "stopping"
	StateStopped  State = "stopped"
)

// Controller describes the state of a controller and its failures.
type Controller struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"controller"`
	Kind    string `json:"kind,omitempty"`
	// Of is the group and kind of its objects, once it is known.
	Of schema.GroupKind `json:"of,omitzero"`
	// At is the file:line of the declaration.
	At    string `json:"at"`
	State State  `json:"state"`
	// Error is why it does not work.
	Error    string   `json:"error,omitempty"`
	Leader   string   `json:"leader,omitempty"`
	WaitsFor []string `json:"waitsFor,omitempty"`
	Counts
	// BlockedSince is set while all workers have been busy with the same objects for more than a minute. It is when the
	// last of these reconciliations began. No other object is reconciled until one returns.
	BlockedSince *time.Time `json:"blockedSince,omitempty"`
	// Oldest is the object that has waited longest for a worker, or nil. /debug/controllers does not show it.
	Oldest *Work `json:"-"`
	// Working are the running reconciliations, oldest first, at most 100; Running counts all. /debug/controllers does not
	// show them.
	Working []Work `json:"-"`
	// Failures are ordered by age, oldest first; Failed counts all.
	Failures []Failure `json:"failures"`
}

// Counts are the numbers of a controller's objects by state.
type Counts struct {
	Ready   int `json:"ready"`
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	Failed  int `json:"failed"` // of all objects, those whose last reconciliation failed
	Flows   int `json:"flows"`  // fibers that have not ended, most of them parked; their objects need no worker
}

// Failure describes an object whose last reconciliation failed.
type Failure struct {
	Key      string `json:"key"`
	Class    string `json:"class"`
	Error    string `json:"error"`
	Stack    string `json:"stack,omitempty"` // of a panic
	Attempts int    `json:"attempts"`
	// Since is the time of the first failure since the last success, or since the last change of the spec. At is the time
	// of the last attempt.
	Since time.Time `json:"since"`
	At    time.Time `json:"at"`
	// Next is the time of the next attempt. It is nil if none is scheduled, or if the object is ready or running; Doing
	// says which.
	Next  *time.Time `json:"next,omitempty"`
	Doing string     `json:"doing"`
}

// Work describes an object that waits for a worker or is being reconciled.
type Work struct {
	Key   string    `json:"key"`
	Since time.Time `json:"since"`
	// Attempt counts the reconciliations since the last success, or since the last change of the spec. It is 0 for an
	// object that waits for a worker.
	Attempt int `json:"attempt,omitempty"`
	// Waits is the error for which the reconciliation currently retries a request, if it does.
	Waits string `json:"waits,omitempty"`
}

// Controllers are the controllers of a program.
type Controllers []Controller

// String returns the text page: the controllers, then their failures.
func (shown Controllers) String() string {
	if len(shown) == 0 {
		return "no controllers\n"
	}
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(tab, "CONTROLLER\tKIND\tSTATE\tREADY\tWAITING\tRUNNING\tFLOWS\tFAILED\tDECLARED")
	failures := 0
	for _, d := range shown {
		failures += len(d.Failures)
		_, _ = fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", d.title(), cmp.Or(d.Kind, "-"), d.State, d.Ready,
			d.Waiting, d.Running, d.Flows, d.Failed, d.At)
	}
	_ = tab.Flush()
	for _, d := range shown {
		if d.BlockedSince != nil {
			_, _ = fmt.Fprintf(&b, "\n%s, blocked: all workers have been at the same objects since %s\n", d.title(),
				clock(*d.BlockedSince))
		}
		for _, why := range append(slices.DeleteFunc([]string{d.Error}, func(s string) bool { return s == "" }),
			d.WaitsFor...) {
			_, _ = fmt.Fprintf(&b, "\n%s, %s: %s\n", d.title(), d.State, flat(why))
		}
	}
	if failures == 0 {
		return b.String()
	}
	_, _ = fmt.Fprintln(&b)
	_, _ = fmt.Fprintln(tab, "CONTROLLER\tKEY\tCLASS\tATTEMPTS\tSINCE\tLAST\tNEXT\tERROR")
	for _, d := range shown {
		for _, f := range d.Failures {
			next := f.Doing
			if f.Next != nil {
				next = clock(*f.Next)
			}
			_, _ = fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", d.title(), f.Key, f.Class, f.Attempts, clock(f.Since),
				clock(f.At), next, flat(f.Error))
		}
	}
	_ = tab.Flush()
	return b.String()
}

func (d Controller) title() string {
	if d.Cluster == "" {
		return d.Name
	}
	return d.Cluster + "/" + d.Name
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// flat joins the lines of s.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }
