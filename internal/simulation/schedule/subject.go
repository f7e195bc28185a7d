package schedule

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

const (
	restart   = time.Second     // until a killed process is started again
	stopLimit = 2 * time.Minute // until a process that was told to end must have ended
	maxExits  = 5               // of its own accord; then the subject is not started any more
)

// Subject starts the processes of the subject, and starts another one for each that ends.
type Subject struct {
	// Start runs a process until ctx ends, as it does when the process is killed.
	Start func(ctx context.Context, p *Process) error
	// WaitForEnd starts the next process only when Start has returned. Otherwise goroutines of a killed process may
	// still be ending beside it.
	WaitForEnd bool

	run       *Run
	processes sync.WaitGroup
	mu        sync.Mutex
	exits     []string
	alive     map[*Process]bool
}

// keepAlive keeps one process of the subject alive until ctx ends.
func (s *Subject) keepAlive(ctx context.Context) {
	for ctx.Err() == nil {
		own, cancel := context.WithCancel(ctx)
		p := &Process{cancel: cancel}
		s.lives(p, true)
		p.Client = &http.Client{Transport: s.run.outsideTransport(p)}
		var failure error // set before ended is closed
		ended := make(chan struct{})
		s.processes.Go(func() {
			defer close(ended)
			failure = s.Start(own, p)
		})
		select {
		case <-ended:
			p.cancel()
			if ctx.Err() == nil && !p.isDead() && s.exited(p, failure) {
				return
			}
		case <-own.Done(): // killed; its goroutines may need a while to notice
			if s.WaitForEnd {
				<-ended
			}
		}
		p.kill()
		s.lives(p, false)
		if sleep(ctx.Done(), restart) == nil {
			s.run.rec.note(engine.Subject, "the subject is started again")
		}
	}
}

func (s *Subject) lives(p *Process, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive == nil {
		s.alive = map[*Process]bool{}
	}
	if alive {
		s.alive[p] = true
	} else {
		delete(s.alive, p)
	}
}

// kill kills all processes.
func (s *Subject) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.alive {
		p.kill()
	}
}

// exited records that a process has ended by itself, and reports whether it should not be started again.
func (s *Subject) exited(p *Process, err error) bool {
	p.mu.Lock()
	spared := p.spared
	p.mu.Unlock()
	if spared {
		return false
	}
	text := "the subject ended although nothing told it to"
	if err != nil {
		text = fmt.Sprintf("the subject ended: %v", err)
	}
	s.run.rec.note(engine.Subject, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exits = append(s.exits, text)
	return len(s.exits) >= maxExits
}

// wait waits until all processes have ended. It returns an error if one does not end.
func (s *Subject) wait() error {
	done := make(chan struct{})
	go func() {
		s.processes.Wait()
		close(done)
	}()
	t := time.NewTimer(stopLimit)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return fmt.Errorf("the subject did not return within %s after its context ended", stopLimit)
	}
}

// ends returns the ends of processes that no fault explains.
func (s *Subject) ends() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exits
}
