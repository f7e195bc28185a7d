package webhook

import (
	"context"
	"errors"
	"sync"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// responseLimiter bounds the number of long answers in memory. A receiver may send slowly on purpose. Therefore slots
// are shared between namespaces and can be revoked. When all are in use, the namespace with the most slots gives one up
// to a namespace with fewer. The try that held it fails with errRevoked and is retried.
type responseLimiter struct {
	mu      sync.Mutex
	free    int
	revoked int // revoked slots that are still in use
	reading fair.Queue[string, *longAnswer]
	waiting fair.Queue[string, *longAnswer]
}

// longAnswer is an answer that has a slot or waits for one.
type longAnswer struct {
	granted chan struct{} // closed when a slot is assigned
	revoke  context.CancelCauseFunc
	revoked bool
}

// errRevoked is the cause when the slot of an answer was revoked.
var errRevoked = errors.New("too many long answers of this namespace are being read")

// acquire waits for a slot until ctx ends. If the slot is revoked, revoke is called with errRevoked. The slot stays in
// use until the caller calls release.
func (l *responseLimiter) acquire(
	ctx context.Context, namespace string, revoke context.CancelCauseFunc,
) (release func(), err error) {
	l.mu.Lock()
	r := l.waiting.Push(namespace, &longAnswer{granted: make(chan struct{}), revoke: revoke})
	l.assign()
	l.mu.Unlock()
	select {
	case <-r.Value.granted:
		return sync.OnceFunc(func() { l.remove(r) }), nil
	case <-ctx.Done():
		l.remove(r)
		return nil, context.Cause(ctx)
	}
}

func (l *responseLimiter) remove(r *fair.Item[string, *longAnswer]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Remove()
	select {
	case <-r.Value.granted:
		l.free++
	default:
	}
	if r.Value.revoked {
		l.revoked--
	}
	l.assign()
}

// assign assigns free slots to the namespaces with the fewest. If waiters remain, it revokes a slot of the namespace
// with the most.
func (l *responseLimiter) assign() {
	for needy := l.neediest(); needy != nil; needy = l.neediest() {
		if l.free == 0 {
			l.makeRoom(needy.Key)
			return
		}
		l.free--
		namespace, r := needy.Key, needy.First()
		r.Remove()
		l.reading.Add(namespace, r)
		close(r.Value.granted)
	}
}

// neediest returns the waiters of the namespace with the fewest slots, or nil.
func (l *responseLimiter) neediest() (least *fair.Line[string, *longAnswer]) {
	for line := range l.waiting.Lines() {
		if least == nil || l.reading.Line(line.Key).Len() < l.reading.Line(least.Key).Len() {
			least = line
		}
	}
	return least
}

// makeRoom revokes the oldest slot of the largest namespace. It does not if a revoked slot is still in use, or if the
// exchange would only swap the two namespaces.
func (l *responseLimiter) makeRoom(needy string) {
	largest := l.reading.Largest()
	if l.revoked > 0 || largest.Len() < l.reading.Line(needy).Len()+2 {
		return
	}
	r := largest.First()
	r.Remove()
	r.Value.revoked = true
	l.revoked++
	r.Value.revoke(errRevoked)
}
