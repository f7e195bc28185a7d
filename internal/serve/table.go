package serve

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gate accepts connections as long as the table has place for them.
type gate struct {
	net.Listener
	table *table
}

// Accept returns the next connection that there is place for.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.table.admit(c) {
			return c, nil
		}
		c.Close()
	}
}

// table knows the connections, and makes place for new ones:
//
//   - Of a client that has at least as many connections as the newcomer's, the connection that has waited longest for a
//     request; of several such clients the one that has the most.
//   - If none waits, the connection that has been at work longest, of the client that has the most, if the newcomer's
//     has fewer.
//
// Else there is no place. So no client can keep others out, however many connections it opens and whatever it does on
// them.
//
// A connection is a stranger's until a handler says [Known] of a request on it. The table bounds how long a stranger's
// connection waits, and how many of one client do: what a waiting connection costs, 20 to 35 KiB, is of little use to a
// client that has not shown who it is.
type table struct {
	most      int
	strangers int           // of one client that wait; 0: any number
	patience  time.Duration // for a stranger to send the whole header of its next request; 0: no bound of the table
	closed    *prometheus.CounterVec

	mu      sync.Mutex
	open    map[net.Conn]*visit
	clients map[string]*client
	waiting int
}

// client has the connections of one client, the longest in their state first.
type client struct {
	waiting, active list.List
	strangers       int // among waiting
}

func (c *client) count() int { return c.waiting.Len() + c.active.Len() }

// visit is one connection.
type visit struct {
	conn   net.Conn
	client string
	active bool
	known  bool
	at     *list.Element
	timer  *time.Timer // closes a stranger that waits; nil before the first one
	waits  int         // how often it has begun to wait, so that a timer that was stopped too late is told from the next
}

func (v *visit) strange() bool { return !v.active && !v.known }

// newTable returns a table for so many connections, with the bounds of strangers if their patience is above 0.
func newTable(most int, patience time.Duration) *table {
	strangers := 0
	if patience > 0 {
		strangers = max(1, most/8)
	}
	return &table{
		most: most, strangers: strangers, patience: patience,
		open: make(map[net.Conn]*visit), clients: make(map[string]*client),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_http_connections_closed_total",
			Help: "Connections closed because there were too many, by what they were: waiting for a request, active, or new; " +
				"or strangers, that have waited too long, or were too many of one client.",
		}, []string{"state"}),
	}
}

// admit takes a connection in, and tells whether there was place.
func (t *table) admit(c net.Conn) bool {
	name := Client(c.RemoteAddr().String())
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= t.most && !t.makePlace(name) {
		t.closed.WithLabelValues("new").Inc()
		return false
	}
	of := t.clients[name]
	if of == nil {
		of = &client{}
		t.clients[name] = of
	}
	v := &visit{conn: c, client: name}
	t.open[c] = v
	t.wait(v, of)
	return true
}

// wait has a connection wait for a request.
func (t *table) wait(v *visit, of *client) {
	v.at = of.waiting.PushBack(v)
	t.waiting++
	if v.known {
		return
	}
	of.strangers++
	if t.patience <= 0 {
		return
	}
	v.waits++
	nth := v.waits
	v.timer = time.AfterFunc(t.patience, func() { t.expire(v, nth) })
	if of.strangers > t.strangers {
		for at := of.waiting.Front(); at != nil; at = at.Next() {
			if oldest := at.Value.(*visit); oldest.strange() {
				t.turnAway(oldest)
				return
			}
		}
	}
}

// unwait is the reverse of wait.
func (t *table) unwait(v *visit, of *client) {
	of.waiting.Remove(v.at)
	t.waiting--
	if v.known {
		return
	}
	of.strangers--
	if v.timer != nil {
		v.timer.Stop()
	}
}

// expire closes a stranger that has not stopped waiting since.
func (t *table) expire(v *visit, nth int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[v.conn] == v && v.strange() && v.waits == nth {
		t.turnAway(v)
	}
}

func (t *table) turnAway(v *visit) {
	t.closed.WithLabelValues("stranger").Inc()
	t.remove(v)
	v.conn.Close()
}

// know notes that the client of a connection has shown who it is. That is said while a request is answered; with HTTP/2
// others may have ended by then, so that it waits.
func (t *table) know(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.open[c]
	if v == nil || v.known {
		return
	}
	if v.strange() {
		t.clients[v.client].strangers--
		if v.timer != nil {
			v.timer.Stop()
		}
	}
	v.known = true
}

// makePlace closes a connection for one of the client.
func (t *table) makePlace(newcomer string) bool {
	own := 0
	if of := t.clients[newcomer]; of != nil {
		own = of.count()
	}
	var most, idle *client
	for _, of := range t.clients {
		if most == nil || of.count() > most.count() {
			most = of
		}
		if of.waiting.Len() > 0 && of.count() >= own && (idle == nil || of.count() > idle.count()) {
			idle = of
		}
	}
	var victim *visit
	switch {
	case idle != nil:
		victim = idle.waiting.Front().Value.(*visit)
		t.closed.WithLabelValues("waiting").Inc()
	case most != nil && most.active.Len() > 0 && most.count() > own+1:
		victim = most.active.Front().Value.(*visit)
		t.closed.WithLabelValues("active").Inc()
	default:
		return false
	}
	t.remove(victim)
	victim.conn.Close()
	return true
}

// changed is told of the states of connections by the server.
func (t *table) changed(c net.Conn, state http.ConnState) {
	c = plain(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.open[c]
	if v == nil { // it was closed to make place
		return
	}
	switch state {
	case http.StateActive, http.StateIdle:
		t.move(v, state == http.StateActive)
	case http.StateClosed, http.StateHijacked:
		t.remove(v)
	}
}

// plain is a connection without TLS.
func plain(c net.Conn) net.Conn {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		return secured.NetConn()
	}
	return c
}

func (t *table) move(v *visit, active bool) {
	if v.active == active {
		return
	}
	of := t.clients[v.client]
	if active {
		t.unwait(v, of)
		v.active, v.at = true, of.active.PushBack(v)
		return
	}
	of.active.Remove(v.at)
	v.active = false
	t.wait(v, of)
}

func (t *table) remove(v *visit) {
	of := t.clients[v.client]
	if v.active {
		of.active.Remove(v.at)
	} else {
		t.unwait(v, of)
	}
	if of.count() == 0 {
		delete(t.clients, v.client)
	}
	delete(t.open, v.conn)
}

func (t *table) count() (waiting, active int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting, len(t.open) - t.waiting
}
