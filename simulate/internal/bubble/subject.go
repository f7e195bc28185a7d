package bubble

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/simulate/internal/engine"
)

const (
	restart   = time.Second     // until a killed process is started again
	stopLimit = 2 * time.Minute // until a process that was told to end must have ended
	maxExits  = 5               // of its own accord; then the subject is not started any more
)

// subject starts the processes of the subject, and starts another one for each that ends.
type subject struct {
	start     func(context.Context, *rest.Config) error
	rec       *recorder
	newConfig func(*process) *rest.Config

	processes sync.WaitGroup
	mu        sync.Mutex
	exits     []string
	live      map[*process]bool
}

// process is one run of the subject's function.
type process struct {
	cancel context.CancelFunc
	client *http.Client // for services outside the cluster

	mu     sync.Mutex
	dead   bool
	paused time.Time // until then
	spared bool      // it has been suspended, so that it may end by itself
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill ends the process as SIGKILL does: from now on it reaches nothing. Its goroutines are told to end, and their
// requests fail.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.cancel()
}

// suspend holds all writes and watches of the process.
func (p *process) suspend(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused, p.spared = time.Now().Add(d), true
}

// resumed waits until the process is not suspended any more.
func (p *process) resumed(done <-chan struct{}) error {
	for {
		p.mu.Lock()
		d := time.Until(p.paused)
		p.mu.Unlock()
		if d <= 0 {
			return nil
		}
		if err := sleep(done, d); err != nil {
			return err
		}
	}
}

// run keeps one process of the subject alive until ctx ends.
func (s *subject) run(ctx context.Context) {
	for ctx.Err() == nil {
		own, cancel := context.WithCancel(ctx)
		p := &process{cancel: cancel}
		s.mu.Lock()
		s.live[p] = true
		s.mu.Unlock()
		ended := make(chan error, 1)
		s.processes.Go(func() {
			err := s.call(own, p)
			s.mu.Lock()
			delete(s.live, p)
			s.mu.Unlock()
			ended <- err
		})
		select {
		case err := <-ended:
			p.cancel()
			if ctx.Err() == nil && !p.isDead() && s.exited(p, err) {
				return
			}
		case <-own.Done(): // killed; its goroutines may need a while to notice
		}
		p.kill()
		if sleep(ctx.Done(), restart) == nil {
			s.rec.note(engine.Subject, "the subject is started again")
		}
	}
}

// exited records that a process has ended by itself, and reports whether it should not be started again.
func (s *subject) exited(p *process, err error) bool {
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
	s.rec.note(engine.Subject, text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exits = append(s.exits, text)
	return len(s.exits) >= maxExits
}

func (s *subject) call(ctx context.Context, p *process) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	cfg := s.newConfig(p)
	return s.start(context.WithValue(ctx, clientKey{}, p.client), cfg)
}

// stop tells all processes to end and waits for them. It returns an error if one does not end.
func (s *subject) stop() error {
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
func (s *subject) ends() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exits
}

type clientKey struct{}

// Client returns the client for services outside the cluster that ctx, given to the subject, carries.
func Client(ctx context.Context) *http.Client {
	c, _ := ctx.Value(clientKey{}).(*http.Client)
	return c
}
