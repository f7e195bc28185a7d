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

// Witness remembers which Webhook the process was computing when it crashed. [CrashLog] is one.
type Witness interface {
	webhook.Witness
	// Condemned returns the Webhooks that have crashed the process while they were computed alone.
	Condemned() []Condemned
	// Settled removes a Condemned whose quarantine is recorded.
	Settled(Condemned)
}

// Condemned is a version of a Webhook that has crashed the process.
type Condemned struct {
	Namespace, Name string
	Revision        string // UID and generation
	Phase           webhook.Phase
	At              time.Time
}

const (
	// suspicions is the number of crashes after which a Webhook is computed alone. A crash is forgotten after the time
	// forgotten.
	suspicions = 2
	forgotten  = time.Hour
	// unsettled is how long a condemned Webhook is kept if its quarantine cannot be recorded, for example since it was
	// deleted.
	unsettled = 24 * time.Hour
	// markSize is the size of a mark in bytes, and maxMarks the number of marks.
	markSize, maxMarks = 1024, 256
	maxReport          = 1 << 20 // bytes of a crash report
	maxSuspects        = 1024
)

// CrashLog records in a directory which Webhook is being computed, and the crash report of the Go runtime. The
// directory has to outlive the process.
//
// A crash is attributed to the Webhooks under computation if it happened in a goroutine that compiles, renders or
// judges one. After two crashes within an hour, a version of a Webhook is computed alone. If the process crashes
// then, too, the version is condemned. SIGKILL and the OOM killer leave no report and are not counted. Reports of
// failed memory allocation are not counted either.
//
// CrashLog is a [Witness], and safe for concurrent use. Close it after use.
type CrashLog struct {
	marks, report *os.File
	path          string // of suspects.json

	mu       sync.Mutex
	free     []int // unused marks, by index
	suspects map[string]*suspect
}

type suspect struct {
	Condemned
	Crashes int
	Guilty  bool
}

// mark is the record of a computation under way.
type mark struct {
	Namespace, Name, Revision string
	Phase                     webhook.Phase
	Alone                     bool
}

// OpenCrashLog evaluates the files that an earlier process has left in dir, and creates dir if needed. Only one
// process may have it open at a time. The program has to pass Output to debug.SetCrashOutput.
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
			_ = c.Close() // the open error is returned
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

// read evaluates the files of an earlier process, and truncates them.
func (c *CrashLog) read(now time.Time) error {
	known, err := os.ReadFile(c.path)
	if err == nil {
		err = json.Unmarshal(known, &c.suspects)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.suspects = make(map[string]*suspect) // same as a lost directory
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

// accuse counts a crash for every Webhook under computation.
func (c *CrashLog) accuse(now time.Time) error {
	marks, err := io.ReadAll(io.LimitReader(c.marks, markSize*maxMarks))
	if err != nil {
		return err
	}
	for m := range slices.Chunk(marks, markSize) {
		var was mark
		if json.Unmarshal(bytes.TrimRight(m, "\x00"), &was) != nil {
			continue // an unused or incomplete mark
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
	// noMemory matches functions of the runtime that fail without memory or threads.
	noMemory = regexp.MustCompile(
		`\nruntime\.(sys[A-Z]\w*|\(\*(mheap|mcentral|mcache)\)\.\w+|mallocgc\w*|persistentalloc\w*|stackalloc|newosproc\w*)\(`,
	)
	// computing is the runtime's name of the function that is on the stack of every computation for a Webhook.
	computing = []byte(reflect.TypeFor[webhook.Client]().PkgPath() + ".computations.run")
)

// blames reports whether a crash report of the runtime is about a computation for a Webhook. The first goroutine in
// the report is the one that has crashed. Reports of signals that another process sends begin with the name of the
// signal.
func blames(report []byte) bool {
	if bytes.HasPrefix(report, []byte("SIG")) {
		return false
	}
	before, stack, found := bytes.Cut(report, []byte("\ngoroutine "))
	stack, _, _ = bytes.Cut(stack, []byte("\n\n"))
	return found && bytes.Contains(stack, computing) && !noMemory.Match(before) && !noMemory.Match(stack)
}

// Output returns the file to which the Go runtime should write crash reports.
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

// write is best effort: without a mark no Webhook is suspected.
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
	_ = c.save() // else Condemned returns it again
}

// Close closes the files. No computation may follow.
func (c *CrashLog) Close() error {
	var errs []error
	for _, f := range []*os.File{c.marks, c.report} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
