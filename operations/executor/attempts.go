package executor

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Attempt is one try or poll of a call by an executor. It has no part of the request or the answer.
type Attempt struct {
	Purpose webhook.Purpose
	Webhook string
	Poll    bool // asked for the result of an earlier try
	Began   time.Time
	Ended   time.Time       // zero: under way
	Status  int             // HTTP status; 0: no answer
	Verdict webhook.Verdict // zero while under way
}

// Attempts are the tries and polls of an operation that an executor remembers. The status of the operation has only
// the first, the last and the next time of each call.
type Attempts struct {
	// Last are the attempts in the order of their return, followed by those under way. It is empty if each call has
	// returned its outcome at the first try.
	Last []Attempt
	// Dropped is the number of earlier attempts that were remembered and dropped.
	Dropped int
	// Since is the time at which the executor was made. Earlier attempts are not known.
	Since time.Time
	// Full reports that attempts of some operations, perhaps of this one, were not kept for lack of memory.
	Full bool
}

const (
	// maxAttempts bounds the attempts of one operation, and maxAttemptBytes the memory for those of all operations.
	maxAttempts     = 16
	maxAttemptBytes = 4 << 20
)

// attempts remembers the tries and polls of operations that need more than one. An operation whose first try brings
// the outcome costs one map lookup.
type attempts struct {
	since time.Time

	mu    sync.Mutex
	all   map[store.Key]*attempted
	over  []store.Key // ended operations, oldest first: their memory is reused
	bytes int
	full  bool
}

// attempted has the attempts of one operation.
type attempted struct {
	key       store.Key
	operation string
	last      []attempt
	dropped   int
	names     int // bytes of the names of its Webhooks in last
	ended     bool
	queued    bool // is in attempts.over
}

// attempt is a compact Attempt.
type attempt struct {
	record.Target
	began   int64 // Unix time in ns
	took    time.Duration
	status  int16
	verdict uint8
	poll    bool
}

const (
	attemptSize = int(unsafe.Sizeof(attempt{}))
	// attemptedSize is twice the size of an entry, because the map needs as much.
	attemptedSize = int(unsafe.Sizeof(attempted{})+unsafe.Sizeof(store.Key{})+unsafe.Sizeof(uintptr(0))) * 2
	// firstAttempts is the capacity for an operation that waits for its first poll.
	firstAttempts = 1
)

// record remembers an attempt that has returned. It skips a first attempt that brings the outcome.
func (a *attempts) record(key store.Key, f *flight, poll bool, ended time.Time, res webhook.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.all[key]
	switch {
	case t != nil && t.operation == f.operation:
		if t.ended && res.Verdict == webhook.Canceled { // the end of the operation has cancelled it
			return
		}
	case !goesOn(res), t != nil && f.since.UnixNano() < t.last[len(t.last)-1].began: // late: of the operation before
		return
	default:
		if t = a.admit(key, f.operation); t == nil {
			return
		}
	}
	t.ended = false
	one := attempt{
		Target: f.target, began: f.since.UnixNano(), took: max(0, ended.Sub(f.since)), status: int16(res.StatusCode),
		verdict: uint8(res.Verdict), poll: poll,
	}
	if i := slices.IndexFunc(t.last, func(o attempt) bool { return o.Target == f.target }); i >= 0 {
		one.Target = t.last[i].Target
	} else {
		one.ID = strings.Clone(one.ID) // the ID may share memory with the object
		t.names += len(one.ID)
		a.bytes += len(one.ID)
	}
	if n := len(t.last); n == cap(t.last) && (n >= maxAttempts || !a.room(attemptSize*n, key)) {
		first := t.last[0].Target
		copy(t.last, t.last[1:])
		t.last[n-1] = one
		t.dropped++
		if !slices.ContainsFunc(t.last, func(o attempt) bool { return o.Target == first }) {
			t.names -= len(first.ID)
			a.bytes -= len(first.ID)
		}
		return
	} else if n == cap(t.last) {
		a.bytes += attemptSize * n
		t.last = append(make([]attempt, 0, 2*n), t.last...)
	}
	t.last = append(t.last, one)
}

// goesOn reports whether a call is tried again or polled after this result.
func goesOn(res webhook.Result) bool {
	return res.Verdict == webhook.Retry || res.Verdict == webhook.Pending ||
		res.Verdict == webhook.Accepted && res.Location != ""
}

// admit starts to remember an operation, and drops the previous one of the same name. It returns nil if the memory is
// used up.
func (a *attempts) admit(key store.Key, operation string) *attempted {
	queued := false
	if t := a.all[key]; t != nil {
		queued = t.queued
		a.drop(key)
	}
	size := attemptedSize + attemptSize*firstAttempts + len(operation) + len(key.Namespace) + len(key.Name)
	if !a.room(size, key) {
		a.full = true
		return nil
	}
	if a.all == nil {
		a.all = make(map[store.Key]*attempted)
	}
	queued = queued && slices.Contains(a.over, key) // unless room has taken it out
	t := &attempted{
		key:       store.Key{Namespace: strings.Clone(key.Namespace), Name: strings.Clone(key.Name)},
		operation: strings.Clone(operation), last: make([]attempt, 0, firstAttempts), queued: queued,
	}
	a.all[t.key] = t
	a.bytes += size
	return t
}

// room reports whether size more bytes fit, after dropping ended operations as needed. It does not drop the operation
// of the key but.
func (a *attempts) room(size int, but store.Key) bool {
	for a.bytes+size > maxAttemptBytes && len(a.over) > 0 {
		key := a.over[0]
		a.over = a.over[1:]
		if t := a.all[key]; t != nil {
			if t.queued = false; t.ended && key != but {
				a.drop(key)
			}
		}
	}
	if len(a.over) == 0 {
		a.over = nil
	}
	return a.bytes+size <= maxAttemptBytes
}

// drop forgets an operation.
func (a *attempts) drop(key store.Key) {
	t := a.all[key]
	delete(a.all, key)
	a.bytes -= attemptedSize + attemptSize*cap(t.last) + len(t.operation) + len(key.Namespace) + len(key.Name) + t.names
}

// end records that no flow works on the operation any more. Its memory may be reused.
func (a *attempts) end(key store.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.all[key]
	if t == nil {
		return
	}
	if t.ended = true; !t.queued {
		t.queued = true
		a.over = append(a.over, t.key)
	}
}

func (a *attempts) of(key store.Key, operation string) Attempts {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := Attempts{Since: a.since, Full: a.full}
	t := a.all[key]
	if t == nil || t.operation != operation {
		return out
	}
	out.Dropped = t.dropped
	for _, one := range t.last {
		began := time.Unix(0, one.began)
		out.Last = append(out.Last, Attempt{
			Purpose: webhook.Purpose(one.Purpose), Webhook: one.ID, Poll: one.poll, Began: began, Ended: began.Add(one.took),
			Status: int(one.status), Verdict: webhook.Verdict(one.verdict),
		})
	}
	return out
}
