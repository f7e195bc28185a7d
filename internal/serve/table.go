package serve

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// gate is a listener that accepts connections while the table has room.
type gate struct {
	net.Listener
	table *table
}

// Accept returns the next connection that the table admits. It closes the others.
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

// table tracks the connections. When they reach the bound, it closes a connection to admit a new one:
//
//   - The connection that has waited longest for a request, of a client with at least as many connections as the new
//     client. Of several such clients it selects the one with the most connections.
//   - If none waits, the connection that has been active longest, of the client with the most connections, if the new
//     client has fewer.
//
// Otherwise it refuses the new connection. So no client can lock out others, whatever number of connections it opens
// and whatever it sends.
//
// A connection belongs to a stranger until a handler calls [Known] for a request on it. The table bounds how long the
// connection of a stranger may wait, and how many of one client do. A waiting connection costs 20 to 35 KiB.
type table struct {
	most          int
	mostStrangers int           // waiting, of one client; 0: no bound
	patience      time.Duration // time for a stranger to send the header of its next request; 0: no bound
	closed        *prometheus.CounterVec

	mu              sync.Mutex
	open            map[net.Conn]*visit
	waiting, active fair.Queue[string, *visit] // by client, each with the longest in that state first
	strangers       fair.Tally[string]         // waiting, by client
}

// visit is one connection.
type visit struct {
	conn   net.Conn
	client string
	active bool
	known  bool
	place  fair.Item[string, *visit] // in table.active or table.waiting
	timer  *time.Timer               // closes a waiting stranger; nil before the first wait
	waits  int                       // number of waits; identifies a late timer of an earlier wait
}

func (v *visit) strange() bool { return !v.active && !v.known }

// newTable returns a table for at most most connections. It bounds strangers if patience is above 0.
func newTable(most int, patience time.Duration) *table {
	strangers := 0
	if patience > 0 {
		strangers = max(1, most/8)
	}
	return &table{
		most: most, mostStrangers: strangers, patience: patience, open: make(map[net.Conn]*visit),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_http_connections_closed_total",
			Help: "Connections closed because there were too many, by state: waiting for a request, active, or new; " +
				"or strangers, that have waited too long, or were too many of one client.",
		}, []string{"state"}),
	}
}

// admit adds a connection and reports whether there was room. The table knows a connection of a TLS listener by the
// connection below TLS, and closes only that.
func (t *table) admit(c net.Conn) bool {
	c = plain(c)
	name := Client(c.RemoteAddr().String())
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= t.most && !t.makePlace(name) {
		t.closed.WithLabelValues("new").Inc()
		return false
	}
	v := &visit{conn: c, client: name}
	v.place = fair.Item[string, *visit]{Value: v, Weight: 1}
	t.open[c] = v
	t.wait(v)
	return true
}

// wait moves a connection to the waiting ones of its client.
func (t *table) wait(v *visit) {
	t.waiting.Add(v.client, &v.place)
	if v.known {
		return
	}
	t.strangers.Add(v.client, 1)
	if t.patience <= 0 {
		return
	}
	v.waits++
	nth := v.waits
	v.timer = time.AfterFunc(t.patience, func() { t.expire(v, nth) })
	if t.strangers.Of(v.client) > t.mostStrangers {
		oldest := t.waiting.Line(v.client).First()
		for oldest.Value.known {
			oldest = oldest.Next()
		}
		t.turnAway(oldest.Value)
	}
}

// unwait is the reverse of wait.
func (t *table) unwait(v *visit) {
	v.place.Remove()
	if v.known {
		return
	}
	t.strangers.Add(v.client, -1)
	if v.timer != nil {
		v.timer.Stop()
	}
}

// expire closes the connection of a stranger that is still in its nth wait.
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

// know marks the client of a connection as authenticated. With HTTP/2 the connection may already be waiting, because
// its other requests have ended.
func (t *table) know(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.open[c]
	if v == nil || v.known {
		return
	}
	if v.strange() {
		t.strangers.Add(v.client, -1)
		if v.timer != nil {
			v.timer.Stop()
		}
	}
	v.known = true
}

// makePlace closes a connection to make room for the client newcomer, and reports whether it did.
func (t *table) makePlace(newcomer string) bool {
	own := t.waiting.Line(newcomer).Len() + t.active.Line(newcomer).Len()
	var victim *visit
	most := max(0, own-1)
	for of := range t.waiting.Lines() {
		if n := of.Len() + t.active.Line(of.Key).Len(); n > most {
			victim, most = of.First().Value, n
		}
	}
	busiest := t.active.Largest()
	switch { // without a victim, the clients with more connections than the newcomer have only active ones
	case victim != nil:
		t.closed.WithLabelValues("waiting").Inc()
	case busiest.Len() > own+1:
		victim = busiest.First().Value
		t.closed.WithLabelValues("active").Inc()
	default:
		return false
	}
	t.remove(victim)
	victim.conn.Close()
	return true
}

// changed is the ConnState hook of the server.
func (t *table) changed(c net.Conn, state http.ConnState) {
	c = plain(c)
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.open[c]
	if v == nil { // it was closed to make room
		return
	}
	switch state {
	case http.StateActive, http.StateIdle:
		t.move(v, state == http.StateActive)
	case http.StateClosed, http.StateHijacked:
		t.remove(v)
	}
}

// plain returns the connection below TLS.
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
	if v.active = active; active {
		t.unwait(v)
		t.active.Add(v.client, &v.place)
		return
	}
	v.place.Remove()
	t.wait(v)
}

func (t *table) remove(v *visit) {
	if v.active {
		v.place.Remove()
	} else {
		t.unwait(v)
	}
	delete(t.open, v.conn)
}

func (t *table) count() (waiting, active int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiting.Len(), t.active.Len()
}
