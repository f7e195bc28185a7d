package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate/internal/bubble"
)

// variable is the environment variable that tells a child which test it serves.
const variable = "FAIRLEAD_SIMULATE_CHILD"

// gaveUp is printed when a step is not reached. What the subject prints later is about its own end.
const gaveUp = "\x00simulate: a step was not reached\n"

// order tells a child to play a plan.
type order struct {
	Plan engine.Plan  `json:"plan"`
	Want *engine.Want `json:"want,omitempty"`
	Same bool         `json:"same,omitempty"` // Want is that of the order before
}

// reply is the answer of a child to a plan.
type reply struct {
	Outcome *engine.Outcome `json:"outcome,omitempty"`
	Error   string          `json:"error,omitempty"`
	Last    bool            `json:"last,omitempty"` // the child plays no more plans
}

// IsChild reports whether this process is a child, and whether it serves this test.
func IsChild(test string) (child, serves bool) {
	v := os.Getenv(variable)
	return v != "", v == test
}

// Serve plays the plans that the parent sends, until it closes the pipe.
func Serve(t *testing.T, s bubble.Setup) {
	signal.Ignore(os.Interrupt) // the parent reports, and closes the pipe
	in, out := os.NewFile(3, "plans"), os.NewFile(4, "outcomes")
	defer in.Close()
	defer out.Close()
	var w watchdog
	s.Progress = func() { w.progress.Add(1) }
	s.GaveUp = func() { fmt.Fprint(os.Stderr, gaveUp) }
	done := make(chan struct{})
	defer close(done)
	go w.run(done, out)
	var want *engine.Want
	lines, enc := bufio.NewReader(in), json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("cannot read a plan: %v", err)
		}
		var o order
		if err := json.Unmarshal(line, &o); err != nil {
			t.Fatalf("cannot read a plan: %v", err)
		}
		if !o.Same {
			want = o.Want
		}
		var r reply
		w.playing.Store(true)
		synctest.Test(t, func(*testing.T) {
			out, err := bubble.Play(s, o.Plan, want)
			r.Outcome = out
			if err != nil {
				r.Error = err.Error()
			}
			if left := leftBehind(); len(left) > 0 {
				// The bubble cannot end, so this process ends in its place.
				if r.Last = true; out != nil {
					out.Warnings = append(out.Warnings, left.String())
				}
				_ = enc.Encode(r)
				os.Exit(leftGoroutines)
			}
		})
		w.playing.Store(false)
		if err := enc.Encode(r); err != nil {
			return // the parent has ended
		}
	}
}
