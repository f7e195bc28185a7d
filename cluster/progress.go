package cluster

import (
	"fmt"
	"io"
	"time"
)

// stage is a phase of a build.
type stage string

// The stages of a build, in order.
const (
	stageWait     stage = "waiting"     // for another process with the same build
	stageDownload stage = "downloading" // modules, and counting the packages to compile
	stageCompile  stage = "compiling"
	stageDone     stage = "done"
)

// report is the progress of a build.
type report struct {
	stage   stage
	detail  string // the module or package last started or finished
	servers string // that are compiled
	modules int    // downloaded so far
	done    int    // packages compiled so far
	total   int    // packages to compile; 0 while unknown
	elapsed time.Duration
}

// String returns one line of text for people.
func (r report) String() string {
	at := r.elapsed.Round(time.Second)
	switch r.stage {
	case stageWait:
		return fmt.Sprintf("control plane: %s waiting for the build by %s", at, r.detail)
	case stageDownload:
		return fmt.Sprintf("control plane: %s downloading, %d modules %s", at, r.modules, r.detail)
	case stageDone:
		return fmt.Sprintf("control plane: built in %s", at)
	default:
		return fmt.Sprintf("control plane: %s compiling %s, %d of %d packages %s",
			at, r.servers, r.done, r.total, r.detail)
	}
}

// lineInterval is the least time between two lines about one stage.
const lineInterval = 5 * time.Second

// linesTo returns a callback that writes a line to w when the stage changes, and within a stage at most one per
// lineInterval. It ignores errors of w. For a nil w it returns nil.
func linesTo(w io.Writer) func(report) {
	if w == nil {
		return nil
	}
	var last report
	return func(r report) {
		if r.stage == last.stage && r.elapsed-last.elapsed < lineInterval {
			return
		}
		last = r
		_, _ = fmt.Fprintln(w, r)
	}
}

// progress makes all calls of the callback from one goroutine. It makes a call each second, so that a long compilation
// is visibly alive.
type progress struct {
	changes chan func(*report) // nil without a callback
	done    chan struct{}
}

func newProgress(fn func(report)) *progress {
	p := &progress{}
	if fn != nil {
		p.changes, p.done = make(chan func(*report)), make(chan struct{})
		go p.run(fn)
	}
	return p
}

func (p *progress) run(fn func(report)) {
	defer close(p.done)
	start, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	var now report
	for {
		select {
		case change, ok := <-p.changes:
			if !ok {
				return
			}
			change(&now)
		case <-tick.C:
			if now.stage == "" {
				continue // nothing to report: the binaries may be in the cache
			}
		}
		now.elapsed = time.Since(start)
		fn(now)
	}
}

func (p *progress) set(change func(*report)) {
	if p.changes != nil {
		p.changes <- change
	}
}

func (p *progress) stop() {
	if p.changes != nil {
		close(p.changes)
		<-p.done
	}
}
