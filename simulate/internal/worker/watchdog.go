package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds for a schedule without progress. A bubble that waits for something outside, such as a network connection,
// makes none and needs no processor. On a busy machine a process that does work may also make none for many seconds.
const (
	stall   = 10 * time.Second      // of seconds in which the process is idle
	endless = time.Minute           // of processor time
	idle    = 20 * time.Millisecond // of processor time in a second: less than this is none
)

// Exit codes of children, for those who watch processes.
const (
	noProgress     = 3
	leftGoroutines = 4
)

// watchdog ends the process if a schedule makes no progress.
type watchdog struct {
	playing  atomic.Bool
	progress atomic.Uint64
}

// run sends the stacks of all goroutines before it ends the process.
func (w *watchdog) run(done <-chan struct{}, out io.Writer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var p pauses
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		why := p.second(w.progress.Load(), w.playing.Load(), processorTime())
		if why == "" {
			continue
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		_ = json.NewEncoder(out).Encode(reply{Error: why + "\n" + string(stacks)})
		os.Exit(noProgress)
	}
}

// pauses measures how long there was no progress. The goroutine of the watchdog owns it.
type pauses struct {
	progress uint64
	idle     time.Duration // of seconds since the last progress in which the process was idle
	since    time.Duration // processor time at the last progress
	last     time.Duration // processor time a second ago
}

// second is called each second, with the progress and the processor time so far. It returns why the schedule does not
// end, or "".
func (p *pauses) second(progress uint64, playing bool, processor time.Duration) string {
	used := processor - p.last
	p.last = processor
	if progress != p.progress || !playing {
		p.progress, p.idle, p.since = progress, 0, processor
		return ""
	}
	if used < idle {
		p.idle += time.Second
	}
	switch {
	case p.idle >= stall:
		return fmt.Sprintf("the schedule made no progress for %s of real time", stall)
	case processor-p.since >= endless:
		return fmt.Sprintf("the schedule computed for %s without a result", endless)
	}
	return ""
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
