package share

import "container/list"

// rota is a queue in which tenants take turns; within a tenant the order is first in, first out. All operations take
// constant time in the number of waiters. Its owner locks it. The zero value is ready for use.
type rota struct {
	lanes map[string]*lane
	turns list.List // of *lane, in order
}

// lane holds the waiters of one tenant.
type lane struct {
	rota   *rota
	tenant string
	queue  list.List // of *waiter
	turn   *list.Element
}

// waiter waits for a share.
type waiter struct {
	key  any // chosen by the owner
	wake func()
	cost Price
	lane *lane
	at   *list.Element
}

// add appends w to the waiters of its tenant.
func (r *rota) add(tenant string, w *waiter) {
	if r.lanes == nil {
		r.lanes = make(map[string]*lane)
	}
	l := r.lanes[tenant]
	if l == nil {
		l = &lane{rota: r, tenant: tenant}
		r.lanes[tenant] = l
		l.turn = r.turns.PushBack(l)
	}
	w.lane, w.at = l, l.queue.PushBack(w)
}

// remove removes w from any position.
func (r *rota) remove(w *waiter) {
	l := w.lane
	if l.queue.Remove(w.at); l.queue.Len() == 0 {
		r.turns.Remove(l.turn)
		delete(r.lanes, l.tenant)
	}
}

// next removes and returns the first waiter of the first tenant for which may returns true, or nil. Skipped tenants
// keep their position.
func (r *rota) next(may func(tenant string) bool) *waiter {
	for e := r.turns.Front(); e != nil; e = e.Next() {
		l := e.Value.(*lane)
		if !may(l.tenant) {
			continue
		}
		r.turns.MoveToBack(e)
		w := l.queue.Front().Value.(*waiter)
		r.remove(w)
		return w
	}
	return nil
}

// first returns the next waiter without restriction by tenant, or nil.
func (r *rota) first() *waiter {
	if r.empty() {
		return nil
	}
	return r.turns.Front().Value.(*lane).queue.Front().Value.(*waiter)
}

func (r *rota) empty() bool { return r.turns.Len() == 0 }
