package source_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// held is a stored object.
type held struct{ uid, version, raw string }

// recorder is a Sink that stores everything in maps and checks the contract of a source.
type recorder struct {
	t *testing.T

	mu          sync.Mutex
	version     string
	objects     map[string]held
	log         []string // "ADDED ns/name 5", "COMMIT 7", "EPOCH 3", "BOOKMARK 9", "STATUS Watching/Watching" …
	statuses    []source.Status
	quarantined []source.Quarantined
	commits     int
	open        bool
	changed     chan struct{}
	refuse      func(o *source.Object) error
	odd         bool // versions have no order
	patience    time.Duration
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, objects: map[string]held{}, changed: make(chan struct{}), patience: testlimit.Wait}
}

func (r *recorder) sink(string) source.Sink { return r }

func (r *recorder) note(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...))
	close(r.changed)
	r.changed = make(chan struct{})
}

// wait blocks until cond holds for what has been recorded.
func (r *recorder) wait(what string, cond func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(r.patience)
	defer deadline.Stop()
	for {
		r.mu.Lock()
		ok, changed := cond(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.t.Fatalf("waited in vain for %s; log: %q, objects %v", what, r.log, r.objects)
		}
	}
}

func (r *recorder) snapshot() map[string]held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.objects)
}

func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.log...)
}

func (r *recorder) status() source.Status {
	if len(r.statuses) == 0 {
		return source.Status{}
	}
	return r.statuses[len(r.statuses)-1]
}

// reported reports whether a status was reported since the start. A wait for a status would miss it, since the next one
// may replace it at any time.
func (r *recorder) reported(phase source.Phase, reason source.Reason, is error) bool {
	return slices.ContainsFunc(r.statuses, func(st source.Status) bool {
		return st.Phase == phase && st.Reason == reason && errors.Is(st.Err, is)
	})
}

func keyOf(h *source.Header) string { return string(h.Namespace) + "/" + string(h.Name) }

func (r *recorder) Known() source.Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	return source.Known{Version: r.version, Count: len(r.objects)}
}

func (r *recorder) Apply(t source.ChangeType, o *source.Object) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		if err := r.refuse(o); err != nil {
			return err
		}
	}
	if r.open {
		r.t.Error("Apply while a replacement is open")
	}
	key, version := keyOf(&o.Header), string(o.Header.ResourceVersion)
	if !r.odd && less(version, r.objects[key].version) {
		r.t.Errorf("version of %s went down from %s to %s without an epoch", key, r.objects[key].version, version)
	}
	if t == source.Deleted {
		delete(r.objects, key)
	} else {
		r.objects[key] = held{string(o.Header.UID), version, string(o.Raw)}
	}
	if r.odd || less(r.version, version) {
		r.version = version // swapped events of different objects may arrive late
	}
	r.note("%s %s %s", t, key, version)
	return nil
}

func (r *recorder) forward(version string) {
	if !r.odd && less(version, r.version) {
		r.t.Errorf("version went down from %s to %s without an epoch", r.version, version)
	}
	r.version = version
}

func less(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

func (r *recorder) Bookmark(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forward(version)
	r.note("BOOKMARK %s", version)
}

func (r *recorder) Quarantine(q source.Quarantined) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quarantined = append(r.quarantined, q)
	r.note("QUARANTINED %s", q.Key())
}

func (r *recorder) Report(s source.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.statuses); n > 0 && r.statuses[n-1].Phase == s.Phase && r.statuses[n-1].Reason == s.Reason {
		r.t.Errorf("status %s/%s reported twice", s.Phase, s.Reason)
	}
	r.statuses = append(r.statuses, s)
	r.note("STATUS %s/%s", s.Phase, s.Reason)
}

func (r *recorder) Replace() source.Replacement {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		r.t.Error("two replacements are open")
	}
	r.open = true
	return &staged{r: r, objects: map[string]held{}}
}

type staged struct {
	r       *recorder
	objects map[string]held
}

func (s *staged) Put(o *source.Object) error {
	if s.r.refuse != nil {
		if err := s.r.refuse(o); err != nil {
			return err
		}
	}
	s.objects[keyOf(&o.Header)] = held{string(o.Header.UID), string(o.Header.ResourceVersion), string(o.Raw)}
	return nil
}

func (s *staged) Remove(o *source.Object) { delete(s.objects, keyOf(&o.Header)) }

func (s *staged) Missing() (missing, known int) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for k := range s.r.objects {
		if _, is := s.objects[k]; !is {
			missing++
		}
	}
	return missing, len(s.r.objects)
}

func (s *staged) end() {
	if !s.r.open {
		s.r.t.Error("replacement ended twice")
	}
	s.r.open = false
}

func (s *staged) Commit(c source.Commit) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.end()
	s.r.commits++
	for key, was := range s.r.objects {
		if now, is := s.objects[key]; is && !c.Epoch && !s.r.odd && less(now.version, was.version) {
			s.r.t.Errorf("a list took %s from %s to %s without an epoch", key, was.version, now.version)
		}
	}
	s.r.objects = s.objects
	if c.Epoch {
		s.r.version = ""
		s.r.note("EPOCH %s", c.Version)
	}
	s.r.forward(c.Version)
	s.r.note("COMMIT %s %d", c.Version, len(s.objects))
}

func (s *staged) Abort() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.end()
	s.r.note("ABORT")
}

// eventually polls a condition that has no signal of its own.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(testlimit.Wait)
	defer deadline.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
