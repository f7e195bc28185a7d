package serve

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// line is a connection from a named address.
type line struct {
	net.Conn
	name   string
	from   net.Addr
	closed bool
}

func (l *line) RemoteAddr() net.Addr { return l.from }
func (l *line) Close() error         { l.closed = true; return nil }

// callers opens connections: "a1" is the first one of client a.
type callers struct {
	table *table
	lines map[string]*line
}

func newCallers(most int) *callers { return &callers{newTable(most, 0), map[string]*line{}} }

func (c *callers) arrive(name string) bool {
	l := &line{name: name, from: &net.TCPAddr{IP: net.IPv4(10, 0, 0, name[0]), Port: 1}}
	if c.lines[name] != nil {
		panic(name)
	}
	c.lines[name] = l
	return c.table.admit(l)
}

func (c *callers) become(state http.ConnState, names ...string) {
	for _, name := range names {
		c.table.changed(c.lines[name], state)
	}
}

func (c *callers) closed() (names []string) {
	for name, l := range c.lines {
		if l.closed {
			names = append(names, name)
		}
	}
	return names
}

// TestClosedTLSConnection: a connection of a TLS listener leaves the table when it is closed.
func TestClosedTLSConnection(t *testing.T) {
	t.Parallel()
	for _, state := range []http.ConnState{http.StateClosed, http.StateHijacked} {
		table := newTable(1, 0)
		c := tls.Server(&line{from: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}}, &tls.Config{})
		if !table.admit(c) {
			t.Fatal("the first connection is refused")
		}
		table.know(plain(c))
		for _, s := range []http.ConnState{http.StateActive, http.StateIdle} {
			table.changed(c, s)
			if waiting, active := table.count(); waiting+active != 1 || (s == http.StateActive) != (active == 1) {
				t.Errorf("%v: %d waiting, %d active", s, waiting, active)
			}
		}
		table.changed(c, state)
		if waiting, active := table.count(); waiting+active != 0 {
			t.Errorf("%v: %d waiting and %d active connections remain", state, waiting, active)
		}
	}
}

func TestRoomForNewConnections(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason       string
		there        string // in order of arrival; capitals are active
		newcomer     string
		comes        bool
		closed       string
		reconsidered string // closed before the retry
	}{
		"Place": {reason: "While there is room no connection is closed.", there: "a1 a2 a3", newcomer: "b1", comes: true},
		"Idle": {
			reason: "The longest waiting connection of the client with the most is closed.", there: "b1 a1 a2 a3",
			newcomer: "c1", comes: true, closed: "a1",
		},
		"Own": {
			reason: "A client with all connections loses its own.", there: "a1 a2 a3 a4", newcomer: "a5",
			comes: true, closed: "a1",
		},
		"OwnNotThose": {
			reason: "A connection of a client never closes one of a client with fewer.", there: "b1 a1 a2 a3", newcomer: "a4",
			comes: true, closed: "a1",
		},
		"AtWork": {
			reason: "A waiting connection is closed before an active one, even of a client with fewer.", there: "A1 A2 b1 b2",
			newcomer: "c1", comes: true, closed: "b1",
		},
		"NotSmaller": {reason: "But not for a client with more.", there: "A1 A2 A3 b1", newcomer: "a4", comes: false},
		"AllAtWork": {
			reason: "If all are active, the client with the most loses one.", there: "A1 A2 A3 B1",
			newcomer: "c1", comes: true, closed: "a1",
		},
		"AllEqual": {
			reason: "But not if the other clients have no more than the new one would.", there: "A1 B1 C1 D1",
			newcomer: "a2", comes: false,
		},
		"Ended": {
			reason: "A closed connection makes room.", there: "A1 A2 A3 A4", newcomer: "a5", comes: true,
			reconsidered: "a2",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCallers(4)
			for _, name := range strings.Fields(tc.there) {
				if lower := strings.ToLower(name); !c.arrive(lower) {
					t.Fatalf("there was no room for %s", name)
				} else if lower != name {
					c.become(http.StateActive, lower)
				}
			}
			if tc.reconsidered != "" {
				c.become(http.StateClosed, tc.reconsidered)
			}
			if got := c.arrive(tc.newcomer); got != tc.comes {
				t.Errorf("%s Accepted: %v", tc.reason, got)
			}
			if diff := cmp.Diff(strings.Fields(tc.closed), c.closed()); diff != "" && len(tc.closed)+len(c.closed()) > 0 {
				t.Errorf("%s Closed (-want +got):\n%s", tc.reason, diff)
			}
			if waiting, active := c.table.count(); waiting+active > 4 {
				t.Errorf("%d waiting and %d active connections", waiting, active)
			}
		})
	}
}

// TestStatesOfConnections: a connection waits again after each request, and closing it twice is safe.
func TestStatesOfConnections(t *testing.T) {
	t.Parallel()
	c := newCallers(2)
	c.arrive("a1")
	c.arrive("a2")
	c.become(http.StateActive, "a1", "a2")
	c.become(http.StateIdle, "a2", "a1")
	if !c.arrive("b1") || !c.lines["a2"].closed {
		t.Error("the longer waiting connection is not closed")
	}
	c.become(http.StateClosed, "a2", "a2", "a1", "b1")
	if waiting, active := c.table.count(); waiting+active > 0 || len(c.table.open) > 0 || c.table.strangers.All() > 0 {
		t.Errorf("%d waiting and %d active are left, of %v", waiting, active, c.table.open)
	}
}

func TestClient(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"10.1.2.3:80": "10.1.2.3", "[::ffff:10.1.2.3]:80": "10.1.2.3", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::",
		"[2001:db8:1:2:ffff::1]:81": "2001:db8:1:2::", "[fe80::1%eth0]:80": "fe80::", "pipe": "pipe", "": "",
	} {
		if got := Client(remote); got != want {
			t.Errorf("%s is %s, want %s", remote, got, want)
		}
	}
}

// TestFewUnidentifiedWait: the idle connections of unidentified clients are bounded, and a client closes only its own.
func TestFewUnidentifiedWait(t *testing.T) {
	t.Parallel()
	c := &callers{newTable(32, time.Hour), map[string]*line{}} // four of one client
	for _, name := range []string{"a1", "a2", "b1", "a3", "a4"} {
		c.arrive(name)
	}
	c.become(http.StateActive, "a1", "a2")
	c.table.know(c.lines["a1"])
	c.become(http.StateIdle, "a1", "a2") // the caller of a1 is identified, a2 waits again
	for _, name := range []string{"a5", "a6", "a7"} {
		c.arrive(name)
	}
	c.table.know(c.lines["a5"])
	c.arrive("a8")
	got := c.closed()
	slices.Sort(got)
	if diff := cmp.Diff([]string{"a3", "a4"}, got); diff != "" {
		t.Errorf("closed (-want +got):\n%s", diff)
	}
	if n := testutil.ToFloat64(c.table.closed.WithLabelValues("stranger")); n != 2 {
		t.Errorf("%v connections were closed", n)
	}
	c.become(http.StateClosed, slices.Collect(maps.Keys(c.lines))...)
	if waiting, active := c.table.count(); waiting+active > 0 || len(c.table.open) > 0 || c.table.strangers.All() > 0 {
		t.Errorf("%d waiting and %d active are left, of %v", waiting, active, c.table.open)
	}
}
