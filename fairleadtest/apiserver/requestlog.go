package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Request is one request as the server received it, and its progress. It is a copy, but its maps and slices are shared
// and must not be modified.
type Request struct {
	ID                    int // counts from 1 in order of arrival
	Verb                  string
	Group, Version        string
	Resource, Subresource string
	Namespace, Name       string
	Page                  int // of a list, from 1
	Method, Path, Proto   string
	Query                 url.Values
	Header                http.Header
	Body                  []byte // of writes
	Start, End            time.Time
	Done                  bool // the server has finished the request, with any outcome
	Code                  int  // of the answer; 0 before the answer
	Bytes                 int64
	Events                int64  // frames of a watch, bookmarks included
	Panic                 string // value and stack, if a user's function panicked; the answer is then 500
	startSeq, endSeq      int
}

// Log is a copy of the request log.
type Log struct{ Requests []Request }

// Select returns the requests that match, in order of arrival.
func (l Log) Select(m Match) []Request {
	var out []Request
	for i := range l.Requests {
		if m.matches(&l.Requests[i]) {
			out = append(out, l.Requests[i])
		}
	}
	return out
}

// Count returns the number of matching requests.
func (l Log) Count(m Match) int { return len(l.Select(m)) }

// Open returns the number of matching requests in progress, such as open watches.
func (l Log) Open(m Match) int {
	n := 0
	for _, r := range l.Select(m) {
		if !r.Done {
			n++
		}
	}
	return n
}

// Peak returns the largest number of matching requests that were open at the same time.
func (l Log) Peak(m Match) int {
	deltas := map[int]int{}
	last := 0
	for _, r := range l.Select(m) {
		deltas[r.startSeq]++
		last = max(last, r.startSeq)
		if r.Done {
			deltas[r.endSeq]--
			last = max(last, r.endSeq)
		}
	}
	open, peak := 0, 0
	for seq := 1; seq <= last; seq++ {
		open += deltas[seq]
		peak = max(peak, open)
	}
	return peak
}

type requestLog struct {
	mu      sync.Mutex
	entries []*logEntry
	seq     int
	waiting atomic.Int32 // calls of WaitFor
	changed chan struct{}
}

// logEntry is a request in progress. req is constant after the start, except the fields that log.mu guards.
type logEntry struct {
	log    *requestLog
	req    Request
	bytes  atomic.Int64
	events atomic.Int64
}

func newRequestLog() *requestLog { return &requestLog{changed: make(chan struct{})} }

func (l *requestLog) start(req Request) *logEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	req.ID, req.startSeq, req.Start = len(l.entries)+1, l.seq, time.Now()
	e := &logEntry{log: l, req: req}
	l.entries = append(l.entries, e)
	l.notifyLocked()
	return e
}

func (e *logEntry) answered(code int) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.req.Code = code
	e.log.notifyLocked()
}

func (e *logEntry) panicked(what string) {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.req.Panic = what
	e.log.notifyLocked()
}

func (e *logEntry) end() {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	e.log.seq++
	e.req.Done, e.req.End, e.req.endSeq = true, time.Now(), e.log.seq
	e.log.notifyLocked()
}

// sent counts sent bytes and events. It takes the lock only if a call of WaitFor is waiting.
func (e *logEntry) sent(bytes, events int) {
	e.bytes.Add(int64(bytes))
	e.events.Add(int64(events))
	if e.log.waiting.Load() > 0 {
		e.log.mu.Lock()
		defer e.log.mu.Unlock()
		e.log.notifyLocked()
	}
}

func (l *requestLog) notifyLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *requestLog) copy() (Log, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := Log{Requests: make([]Request, len(l.entries))}
	for i, e := range l.entries {
		out.Requests[i] = e.req
		out.Requests[i].Bytes, out.Requests[i].Events = e.bytes.Load(), e.events.Load()
	}
	return out, l.changed
}

// Log returns a copy of the request log.
func (s *Server) Log() Log {
	l, _ := s.log.copy()
	return l
}

// WaitFor waits until the request log satisfies done. It calls done after each change of the log: a request arrives, is
// answered, sends bytes or ends. If ctx ends first, it returns an error with the last requests.
func (s *Server) WaitFor(ctx context.Context, done func(Log) bool) error {
	s.log.waiting.Add(1)
	defer s.log.waiting.Add(-1)
	for {
		l, changed := s.log.copy()
		if done(l) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("cannot wait for the requests, the last are %s: %w", l.tail(5), context.Cause(ctx))
		}
	}
}

func (l Log) tail(n int) string {
	s := ""
	for _, r := range l.Requests[max(0, len(l.Requests)-n):] {
		s += fmt.Sprintf("[%d %s %s?%s → %d, done %t]", r.ID, r.Verb, r.Path, r.Query.Encode(), r.Code, r.Done)
	}
	return s
}
