package watch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
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

// format writes one output format. Calls are not concurrent.
type format interface {
	event(w io.Writer, e store.Event) error
	status(w io.Writer, s source.Status) error
	stats(w io.Writer, s watchStats) error
	// share reports the slots whose objects are shown, if other processes show the others.
	share(w io.Writer, member string, held shard.Set) error
	// settle is called when no further event is pending.
	settle(w io.Writer) error
}

// watchStats holds counts and times since the start.
type watchStats struct {
	Type           string  `json:"type"`
	Count          int     `json:"count"`
	Events         int     `json:"events"`
	ElapsedSeconds float64 `json:"elapsedSeconds"`
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
	return p.fail(errors.Join(p.format.settle(p.out), p.out.Flush()))
}

func (p *printer) status(s source.Status) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(errors.Join(p.format.status(p.out, s), p.format.settle(p.out), p.out.Flush()))
}

func (p *printer) share(member string, held shard.Set) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(errors.Join(p.format.share(p.out, member, held), p.format.settle(p.out), p.out.Flush()))
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
	errs = append(errs, p.format.settle(p.out))
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

// jsonFormat writes one JSON object per line. It copies the object unchanged, without decoding.
type jsonFormat struct{ line []byte }

func (f *jsonFormat) event(w io.Writer, e store.Event) error {
	b := append(f.line[:0], `{"type":"`...)
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Sync:
		b = append(b, e.Type.String()...)
		b = append(b, '"')
		switch {
		case e.Type == store.Added && e.Initial:
			b = append(b, `,"initial":true`...)
		case e.Type == store.Deleted:
			b = append(b, `,"inferred":`...)
			b = strconv.AppendBool(b, e.Inferred)
		}
		b = appendField(b, "key", e.Key.String())
		b = appendField(b, "uid", string(e.Object.UID()))
		b = appendField(b, "resourceVersion", e.Object.Version())
		if e.Type == store.Modified && e.Prior != nil {
			b = appendField(b, "previousResourceVersion", e.Prior.Version())
		}
		b = append(b, `,"object":`...)
		begin := len(b)
		var err error
		if b, err = e.Object.AppendJSON(b); err != nil {
			return err
		}
		oneLineJSON(b[begin:])
	case store.Left: // another process has the object now
		b = append(b, `LEFT"`...)
		b = appendField(b, "key", e.Key.String())
		b = appendField(b, "uid", string(e.Object.UID()))
		b = appendField(b, "resourceVersion", e.Object.Version())
	case store.Synced:
		b = append(b, `SYNCED"`...)
		b = appendField(b, "resourceVersion", e.Version)
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, int64(e.Count), 10)
	case store.Epoch:
		b = append(b, `EPOCH"`...)
		b = appendField(b, "reason", e.Reason)
		b = appendField(b, "resourceVersion", e.Version)
	case store.QuarantinedObject:
		b = append(b, `QUARANTINED"`...)
		b = appendField(b, "key", e.Key.String())
		b = appendField(b, "uid", string(e.UID))
		b = appendField(b, "resourceVersion", e.Version)
		b = appendField(b, "error", e.Err.Error())
	default:
		return nil
	}
	b = append(b, '}', '\n')
	f.line = b
	if cap(f.line) > 1<<20 {
		f.line = nil
	}
	_, err := w.Write(b)
	return err
}

// oneLineJSON replaces line ends in a JSON value. Within strings they are escaped, so this does not change the value.
func oneLineJSON(b []byte) {
	for _, end := range []byte{'\n', '\r'} {
		for rest := b; ; {
			i := bytes.IndexByte(rest, end)
			if i < 0 {
				break
			}
			rest[i], rest = ' ', rest[i+1:]
		}
	}
}

// appendField appends a member with a string value.
func appendField(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	for i := range len(value) {
		if c := value[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := json.Marshal(value) // a string always encodes
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, value...)
	return append(b, '"')
}

func (f *jsonFormat) status(w io.Writer, s source.Status) error {
	return json.NewEncoder(w).Encode(struct {
		Type         string        `json:"type"`
		Namespace    string        `json:"namespace,omitempty"`
		Phase        source.Phase  `json:"phase"`
		Reason       source.Reason `json:"reason"`
		Message      string        `json:"message"`
		StaleSeconds float64       `json:"staleSeconds"`
	}{"STATUS", s.Namespace, s.Phase, s.Reason, s.Message, s.Staleness(time.Now()).Seconds()})
}

func (f *jsonFormat) share(w io.Writer, member string, held shard.Set) error {
	return json.NewEncoder(w).Encode(struct {
		Type   string `json:"type"`
		Member string `json:"member"`
		Slots  []int  `json:"slots"`
		Of     int    `json:"of"`
	}{"SHARD", member, slices.AppendSeq([]int{}, held.Slots()), held.Layout().Len()})
}

func (f *jsonFormat) stats(w io.Writer, s watchStats) error { return json.NewEncoder(w).Encode(s) }
func (f *jsonFormat) settle(io.Writer) error                { return nil }

// nameFormat writes the name of each added or changed object, as kubectl does. Statuses go to stderr.
type nameFormat struct {
	resource string
	log      io.Writer
}

func (f *nameFormat) event(w io.Writer, e store.Event) error {
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Sync:
		_, err := fmt.Fprintf(w, "%s/%s\n", f.resource, e.Key)
		return err
	default:
		return nil
	}
}

func (f *nameFormat) status(_ io.Writer, s source.Status) error { return logStatus(f.log, s) }
func (f *nameFormat) stats(_ io.Writer, s watchStats) error     { return logStats(f.log, s) }
func (f *nameFormat) share(_ io.Writer, _ string, held shard.Set) error {
	return logShare(f.log, held)
}
func (f *nameFormat) settle(io.Writer) error { return nil }

// noFormat writes no objects.
type noFormat struct{ log io.Writer }

func (f *noFormat) event(io.Writer, store.Event) error        { return nil }
func (f *noFormat) status(_ io.Writer, s source.Status) error { return logStatus(f.log, s) }
func (f *noFormat) stats(_ io.Writer, s watchStats) error     { return logStats(f.log, s) }
func (f *noFormat) share(_ io.Writer, _ string, held shard.Set) error {
	return logShare(f.log, held)
}
func (f *noFormat) settle(io.Writer) error { return nil }

func logStatus(w io.Writer, s source.Status) error {
	_, err := fmt.Fprintln(w, statusLine(s))
	return err
}

func logShare(w io.Writer, held shard.Set) error {
	_, err := fmt.Fprintln(w, shareLine(held))
	return err
}

func shareLine(held shard.Set) string {
	slots := held.String()
	if held.IsEmpty() {
		slots = "none"
	}
	return fmt.Sprintf("slots: %s of %d", slots, held.Layout().Len())
}

func logStats(w io.Writer, s watchStats) error {
	_, err := fmt.Fprintf(w, "%d objects, %d events in %.3fs\n", s.Count, s.Events, s.ElapsedSeconds)
	return err
}

func statusLine(s source.Status) string {
	line := string(s.Phase)
	if s.Namespace != "" {
		line = s.Namespace + ": " + line
	}
	if string(s.Reason) != string(s.Phase) {
		line += " (" + string(s.Reason) + ")"
	}
	if s.Message != "" {
		line += ": " + s.Message
	}
	if stale := s.Staleness(time.Now()).Round(time.Second); s.Phase == source.Degraded && stale > 0 {
		line += fmt.Sprintf("; shown is the state of %v ago", stale)
	}
	return line
}
