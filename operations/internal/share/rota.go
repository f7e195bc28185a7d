package share

import "container/list"

// rota is a queue in which tenants take turns; of one tenant who came first is first. Nothing in it takes longer the
// more wait. Its owner locks it. The zero value is ready for use.
type rota struct {
	lanes map[string]*lane
	turns list.List // of *lane, the next one first
}

// lane is what waits of one tenant.
type lane struct {
	rota   *rota
	tenant string
	queue  list.List // of *waiter
	turn   *list.Element
}

// waiter waits for something that is shared.
type waiter struct {
	key  any // of the owner
	wake func()
	cost Price
	lane *lane
	at   *list.Element
}

// add puts w behind the others of its tenant.
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

// remove takes w out, wherever it stands.
func (r *rota) remove(w *waiter) {
	l := w.lane
	if l.queue.Remove(w.at); l.queue.Len() == 0 {
		r.turns.Remove(l.turn)
		delete(r.lanes, l.tenant)
	}
}

// next takes out the first of the first tenant who may be served; nil if there is none. Those tenants who may not stay
// where they are.
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

// first is who would be next if everybody may be served; nil if there is nobody.
func (r *rota) first() *waiter {
	if r.empty() {
		return nil
	}
	return r.turns.Front().Value.(*lane).queue.Front().Value.(*waiter)
}

func (r *rota) empty() bool { return r.turns.Len() == 0 }
