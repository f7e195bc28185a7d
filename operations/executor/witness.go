package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Witness tells, after a process has died, whose code it was computing. [CrashLog] is one.
type Witness interface {
	webhook.Witness
	// Condemned returns what has killed the process while nothing else was computed.
	Condemned() []Condemned
	// Settled says that this need not be told again.
	Settled(Condemned)
}

// Condemned is a version of a Webhook that has killed the process.
type Condemned struct {
	Namespace, Name string
	Revision        string // the UID and the generation
	Phase           webhook.Phase
	At              time.Time
}

const (
	// suspicions is after how many crashes a Webhook is computed alone, and forgotten is when a crash counts no more.
	suspicions = 2
	forgotten  = time.Hour
	// unsettled is for how long it is told who is guilty, if nothing can be done about it: the Webhook is gone, perhaps.
	unsettled = 24 * time.Hour
	// markSize is that of a record of what is being computed, and maxMarks how many are kept.
	markSize, maxMarks = 1024, 256
	maxReport          = 1 << 20 // bytes of what the Go runtime says of a crash
	maxSuspects        = 1024
)

// CrashLog keeps, in files of a directory that outlives the process, what is computed for which Webhook, and what the
// Go runtime says when it crashes. A crash is put down to the Webhooks that were being computed, if it happened there:
// in the goroutine that compiles, renders or judges. After two crashes within an hour a version of a Webhook is
// computed alone, and condemned if the process dies of it then, too. Who is killed leaves no such report, so that
// neither SIGKILL nor the kernel's want of memory counts; nor does a report that memory was not to be had.
//
// It is a [Witness], and safe for concurrent use. Close it after use.
type CrashLog struct {
	marks, report *os.File
	path          string // of the suspects

	mu       sync.Mutex
	free     []int // marks
	suspects map[string]*suspect
}

type suspect struct {
	Condemned
	Crashes int
	Guilty  bool
}

// mark is what is being computed.
type mark struct {
	Namespace, Name, Revision string
	Phase                     webhook.Phase
	Alone                     bool
}

// OpenCrashLog reads what an earlier process has left in a directory, which is made if it is not there. One process may
// have it at a time. The program has to give Output to debug.SetCrashOutput.
func OpenCrashLog(dir string) (_ *CrashLog, err error) {
	fail := func(err error) (*CrashLog, error) {
		return nil, fmt.Errorf("cannot open the crash log %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	c := &CrashLog{path: filepath.Join(dir, "suspects.json"), suspects: make(map[string]*suspect)}
	defer func() {
		if err != nil {
			_ = c.Close() // it is not used
		}
	}()
	for file, name := range map[**os.File]string{&c.marks: "marks", &c.report: "report"} {
		if *file, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600); err != nil {
			return fail(err)
		}
	}
	if err := syscall.Flock(int(c.marks.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fail(fmt.Errorf("another process has it: %w", err))
	}
	if err := c.read(time.Now()); err != nil {
		return fail(err)
	}
	for i := range maxMarks {
		c.free = append(c.free, maxMarks-1-i)
	}
	return c, nil
}

// read learns from what an earlier process has left, and forgets it.
func (c *CrashLog) read(now time.Time) error {
	known, err := os.ReadFile(c.path)
	if err == nil {
		err = json.Unmarshal(known, &c.suspects)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.suspects = make(map[string]*suspect) // it is no worse than the loss of the directory
	}
	maps.DeleteFunc(c.suspects, func(_ string, s *suspect) bool {
		return s == nil || now.Sub(s.At) > forgotten && (!s.Guilty || now.Sub(s.At) > unsettled)
	})
	report, err := io.ReadAll(io.LimitReader(c.report, maxReport))
	if err != nil {
		return err
	}
	if blames(report) {
		if err := c.accuse(now); err != nil {
			return err
		}
	}
	if err := c.save(); err != nil {
		return err
	}
	_, err = c.report.Seek(0, io.SeekStart)
	return errors.Join(err, c.report.Truncate(0), c.marks.Truncate(0))
}

// accuse notes a crash for all that was being computed.
func (c *CrashLog) accuse(now time.Time) error {
	marks, err := io.ReadAll(io.LimitReader(c.marks, markSize*maxMarks))
	if err != nil {
		return err
	}
	for m := range slices.Chunk(marks, markSize) {
		var was mark
		if json.Unmarshal(bytes.TrimRight(m, "\x00"), &was) != nil {
			continue // nothing, or an end of something
		}
		s := c.suspects[was.Revision]
		if s == nil {
			if len(c.suspects) >= maxSuspects {
				continue
			}
			s = &suspect{Condemned: Condemned{Namespace: was.Namespace, Name: was.Name, Revision: was.Revision}}
			c.suspects[was.Revision] = s
		}
		s.Crashes++
		s.Phase, s.At, s.Guilty = was.Phase, now, s.Guilty || was.Alone
	}
	return nil
}

func (c *CrashLog) save() error {
	raw, err := json.Marshal(c.suspects)
	if err != nil {
		return err
	}
	fresh := c.path + ".new"
	if err := os.WriteFile(fresh, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, c.path)
}

var (
	// noMemory are functions of the runtime that find that there is no memory, or that no thread can be had.
	noMemory = regexp.MustCompile(
		`\nruntime\.(sys[A-Z]\w*|\(\*(mheap|mcentral|mcache)\)\.\w+|mallocgc\w*|persistentalloc\w*|stackalloc|newosproc\w*)\(`,
	)
	// computing is the function that is on the stack of all computations for a Webhook, as the runtime names it.
	computing = []byte(reflect.TypeFor[webhook.Client]().PkgPath() + ".(*Client).compute")
)

// blames tells whether the runtime's report is of a crash in what is computed for a Webhook. Of the goroutines in it
// the first one is that which has crashed. Signals that somebody sends make reports too, which begin with their names.
func blames(report []byte) bool {
	if bytes.HasPrefix(report, []byte("SIG")) {
		return false
	}
	before, stack, found := bytes.Cut(report, []byte("\ngoroutine "))
	stack, _, _ = bytes.Cut(stack, []byte("\n\n"))
	return found && bytes.Contains(stack, computing) && !noMemory.Match(before) && !noMemory.Match(stack)
}

// Output is where the Go runtime is to write when it crashes.
func (c *CrashLog) Output() *os.File { return c.report }

// Begin implements webhook.Witness.
func (c *CrashLog) Begin(d *webhook.Definition, p webhook.Phase, alone bool) (end func()) {
	raw, err := json.Marshal(mark{d.Namespace, d.Name, d.Revision, p, alone})
	if err != nil || len(raw) > markSize {
		return func() {}
	}
	c.mu.Lock()
	if len(c.free) == 0 {
		c.mu.Unlock()
		return func() {}
	}
	at := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.mu.Unlock()
	c.write(at, append(raw, make([]byte, markSize-len(raw))...))
	return func() {
		c.write(at, []byte{0})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.free = append(c.free, at)
	}
}

// write is best effort: without a mark nobody is suspected.
func (c *CrashLog) write(at int, what []byte) { _, _ = c.marks.WriteAt(what, int64(at)*markSize) }

// Suspects implements webhook.Witness.
func (c *CrashLog) Suspects(d *webhook.Definition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.suspects[d.Revision]
	return s != nil && s.Crashes >= suspicions && time.Since(s.At) < forgotten
}

// Condemned implements Witness.
func (c *CrashLog) Condemned() (all []Condemned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.suspects {
		if s.Guilty {
			all = append(all, s.Condemned)
		}
	}
	return all
}

// Settled implements Witness.
func (c *CrashLog) Settled(w Condemned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.suspects, w.Revision)
	_ = c.save() // else it is told once more
}

// Close closes the files. Nothing may be computed any more.
func (c *CrashLog) Close() error {
	var errs []error
	for _, f := range []*os.File{c.marks, c.report} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
