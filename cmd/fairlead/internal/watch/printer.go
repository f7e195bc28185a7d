package watch

import (
	"bufio"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// printer writes events and statuses in one of the formats. It is safe for concurrent use.
type printer struct {
	resource resource
	stats    bool
	begin    time.Time

	mu     sync.Mutex
	out    *bufio.Writer
	format format
	events int
	count  int
	failed error
}

// newPrinter returns a printer. After interrupted is closed, it no longer waits for a stopped reader.
func newPrinter(s cli.Streams, output string, r resource, stats bool, interrupted <-chan struct{}) *printer {
	out := bufio.NewWriterSize(&interruptible{s.Out, interrupted}, 64<<10)
	p := &printer{resource: r, stats: stats, begin: time.Now(), out: out}
	width, height, tty := cli.Terminal(s.Out)
	switch {
	case output == "json":
		p.format = &jsonFormat{}
	case output == "name":
		p.format = &nameFormat{resource: r.gvr.GroupResource().String(), log: s.Err}
	case output == "none":
		p.format = &noFormat{log: s.Err}
	case tty:
		p.format = newScreen(r, width, height)
	default:
		p.format = newTable(r, s.Err)
	}
	return p
}

// print writes a batch of events and flushes the output.
func (p *printer) print(batch []store.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range batch {
		switch e.Type {
		case store.Added:
			p.count++
		case store.Deleted, store.Left:
			p.count--
		}
		if e.Type != store.Synced {
			p.events++
		}
		err := p.format.event(p.out, e)
		if err == nil && e.Type == store.Synced && p.stats {
			err = p.format.stats(p.out, p.counts())
		}
		if p.fail(err) != nil {
			return p.failed
		}
	}
	return p.fail(errors.Join(p.format.flush(p.out), p.out.Flush()))
}

func (p *printer) status(s source.Status) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(errors.Join(p.format.status(p.out, s), p.format.flush(p.out), p.out.Flush()))
}

func (p *printer) slots(member string, held shard.Set) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(errors.Join(p.format.slots(p.out, member, held), p.format.flush(p.out), p.out.Flush()))
}

func (p *printer) counts() watchStats {
	return watchStats{Type: "STATS", Count: p.count, Events: p.events, ElapsedSeconds: time.Since(p.begin).Seconds()}
}

// close writes the final status of each scope, and then the counts.
func (p *printer) close(ends []source.Status) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return p.failed
	}
	var errs []error
	for _, s := range ends {
		errs = append(errs, p.format.status(p.out, s))
	}
	errs = append(errs, p.format.flush(p.out))
	if p.stats {
		errs = append(errs, p.format.stats(p.out, p.counts()))
	}
	return p.fail(errors.Join(append(errs, p.out.Flush())...))
}

// fail remembers the first error.
func (p *printer) fail(err error) error {
	if p.failed == nil && err != nil {
		p.failed = fmt.Errorf("cannot print: %w", err)
	}
	return p.failed
}
