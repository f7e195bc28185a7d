package executor

import (
	"sync"

	"github.com/fairlead-io/fairlead/internal/store"
)

// lines has the operations that wait for another one: for its end, or for news of it. A waiting operation is known by
// the flag that wakes it, and is in one line at a time. It is safe for concurrent use. Its lock is a leaf lock.
type lines struct {
	mu      sync.Mutex
	waiting map[store.Key]map[*news]struct{} // by the key of the operation ahead
	ahead   map[*news]store.Key
}

// join puts an operation into the line behind another one, instead of the line in which it is. The caller has to look
// at the operation ahead again afterwards, since that may have changed before.
func (l *lines) join(n *news, behind store.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(n)
	if l.waiting == nil {
		l.waiting, l.ahead = make(map[store.Key]map[*news]struct{}), make(map[*news]store.Key)
	}
	if l.waiting[behind] == nil {
		l.waiting[behind] = make(map[*news]struct{})
	}
	l.waiting[behind][n] = struct{}{}
	l.ahead[n] = behind
}

// leave takes an operation out of its line, if it is in one.
func (l *lines) leave(n *news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(n)
}

func (l *lines) remove(n *news) {
	behind, waits := l.ahead[n]
	if !waits {
		return
	}
	delete(l.ahead, n)
	if delete(l.waiting[behind], n); len(l.waiting[behind]) == 0 {
		delete(l.waiting, behind)
	}
}

// behind returns the key of the operation for which another one waits. It returns false if there is none.
func (l *lines) behind(n *news) (key store.Key, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, waits = l.ahead[n]
	return key, waits
}

// wake wakes the operations behind one that has changed or was deleted. They stay in the line.
func (l *lines) wake(key store.Key) {
	l.mu.Lock()
	var woken []*news
	for n := range l.waiting[key] {
		woken = append(woken, n)
	}
	l.mu.Unlock()
	for _, n := range woken {
		n.Set()
	}
}

// count returns the number of waiting operations.
func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ahead)
}
