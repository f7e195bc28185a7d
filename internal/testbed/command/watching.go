package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
)

// Line is one line of fairlead watch -o json.
type Line struct {
	Type, Key, UID, Namespace, Phase, Reason, Error string
	ResourceVersion, PreviousResourceVersion        string
	Initial, Inferred                               bool
	Count                                           int
	Object                                          map[string]any
	Member                                          string
	Slots                                           []int
	Of                                              int
}

// Watching reads the output of a running fairlead watch -o json.
type Watching struct {
	// All are the lines read so far.
	All []Line
	// Errs has the stderr of the command.
	Errs fmt.Stringer

	t     testing.TB
	limit <-chan struct{}
	lines chan Line
	end   func() int
}

// NewWatching starts to read out until it or ctx ends, and then closes it. end stops the command and returns its exit
// code; it is called once, by Stop.
func NewWatching(ctx context.Context, t testing.TB, out io.ReadCloser, errs fmt.Stringer, end func() int) *Watching {
	w := &Watching{Errs: errs, t: t, limit: ctx.Done(), lines: make(chan Line, 1024), end: end}
	go func() {
		defer close(w.lines)
		defer out.Close()
		for d := json.NewDecoder(out); ; {
			var l Line
			if err := d.Decode(&l); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("output is not JSON: %v", err)
				}
				return
			}
			select {
			case w.lines <- l:
			case <-w.limit:
				return
			}
		}
	}()
	return w
}

// Stop ends the command, reads the rest of its output, and returns its exit code.
func (w *Watching) Stop() int {
	code := make(chan int, 1)
	go func() { code <- w.end() }()
	for l := range w.lines {
		w.All = append(w.All, l)
	}
	return <-code
}

// Await reads lines until ok accepts one, and returns that line.
func (w *Watching) Await(what string, ok func(Line) bool) Line {
	w.t.Helper()
	for {
		select {
		case l, more := <-w.lines:
			if !more {
				w.t.Fatalf("ended before %s; stderr: %s", what, w.Errs)
			}
			w.All = append(w.All, l)
			if ok(l) {
				return l
			}
		case <-w.limit:
			w.t.Fatalf("no %s; got %+v", what, w.All)
		}
	}
}

// Event waits for an event of an object.
func (w *Watching) Event(kind, key string) Line {
	w.t.Helper()
	return w.Await(kind+" "+key, func(l Line) bool { return l.Type == kind && l.Key == key })
}

// Synced waits for the SYNCED event, which follows the initial objects.
func (w *Watching) Synced() Line {
	w.t.Helper()
	return w.Await("SYNCED", func(l Line) bool { return l.Type == "SYNCED" })
}

// Status waits for a status with a reason.
func (w *Watching) Status(reason string) Line {
	w.t.Helper()
	return w.Await("STATUS "+reason, func(l Line) bool { return l.Type == "STATUS" && l.Reason == reason })
}
