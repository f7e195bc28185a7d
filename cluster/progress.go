package cluster

import (
	"fmt"
	"io"
	"time"
)

// Stage is a phase of a build.
type Stage string

// The stages of a build, in order.
const (
	stageWait     Stage = "waiting"     // for another process with the same build
	stageDownload Stage = "downloading" // modules, and counting the packages to compile
	stageCompile  Stage = "compiling"
	stageDone     Stage = "done"
)

// Progress is the progress of a build.
type Progress struct {
	Stage   Stage
	Detail  string // the module or package last started or finished
	Modules int    // downloaded so far
	Done    int    // packages compiled so far
	Total   int    // packages to compile; 0 while unknown
	Elapsed time.Duration
}

// String returns one line of text for people.
func (p Progress) String() string {
	at := p.Elapsed.Round(time.Second)
	switch p.Stage {
	case stageWait:
		return fmt.Sprintf("control plane: %s waiting for the build by %s", at, p.Detail)
	case stageDownload:
		return fmt.Sprintf("control plane: %s downloading, %d modules %s", at, p.Modules, p.Detail)
	case stageDone:
		return fmt.Sprintf("control plane: built in %s", at)
	default:
		return fmt.Sprintf("control plane: %s compiling etcd and kube-apiserver, %d of %d packages %s",
			at, p.Done, p.Total, p.Detail)
	}
}

// ProgressTo returns a callback that writes a line to w when the stage changes, and within a stage at most one per
// interval (default: five seconds). It ignores errors of w.
func ProgressTo(w io.Writer, interval time.Duration) func(Progress) {
	if interval <= 0 {
		interval = 5 * time.Second
	}
	var last Progress
	return func(p Progress) {
		if p.Stage == last.Stage && p.Elapsed-last.Elapsed < interval {
			return
		}
		last = p
		_, _ = fmt.Fprintln(w, p)
	}
}

// progress makes all calls of the callback from one goroutine. It makes a call each second, so that a long compilation
// is visibly alive.
type progress struct {
	changes chan func(*Progress) // nil without a callback
	done    chan struct{}
}

func newProgress(fn func(Progress)) *progress {
	p := &progress{}
	if fn != nil {
		p.changes, p.done = make(chan func(*Progress)), make(chan struct{})
		go p.run(fn)
	}
	return p
}

func (p *progress) run(fn func(Progress)) {
	defer close(p.done)
	start, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	var now Progress
	for {
		select {
		case change, ok := <-p.changes:
			if !ok {
				return
			}
			change(&now)
		case <-tick.C:
			if now.Stage == "" {
				continue // nothing to report: the binaries may be in the cache
			}
		}
		now.Elapsed = time.Since(start)
		fn(now)
	}
}

func (p *progress) set(change func(*Progress)) {
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
