package webhook

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

const (
	// maxPools bounds the weight of all connection pools: 4,096 of them without their own certificates.
	maxPools   = 64 << 20
	poolWeight = 16 << 10
	// maxConnections bounds the connections, busy and idle. A namespace may have at most as many as remain for the
	// others.
	maxConnections = 1024
	// maxIdle bounds the idle connections of a pool, and maxIdlePerHost those to one host.
	maxIdle, maxIdlePerHost = 256, 64
)

// errConnections means that the namespace has reached its share of connections.
var errConnections = errors.New("the namespace has too many connections")

// transports holds the connection pools. Each pool belongs to one namespace, so namespaces never share connections. To
// stay within maxPools, it evicts the least recently used pool of the largest namespace.
type transports struct {
	guard *guard.Guard
	proxy *url.URL
	fence func(namespace string) error // nil: none

	mu          sync.Mutex
	spaces      map[string]*poolSpace
	weight      int
	connections int // including those being dialed
}

// poolSpace holds the pools and connections of one namespace.
type poolSpace struct {
	namespace   string
	byKey       map[[32]byte]*list.Element
	recent      list.List // of *pool, most recent first
	weight      int
	connections int
}

type pool struct {
	key       [32]byte
	transport *http.Transport
	weight    int
	users     int
	evicted   bool
}

// transport returns the pool of a namespace for m. It parses certificates in a turn of the namespace. The caller must
// call release after reading the answer.
func (c *Client) transport(
	ctx context.Context, namespace string, m tlsMaterial,
) (rt http.RoundTripper, release func(), err error) {
	t, key := &c.transports, m.fingerprint()
	if rt, release = t.get(namespace, key, nil, 0); rt != nil {
		return rt, release, nil
	}
	var config *tls.Config
	if waited := c.turns.do(ctx, namespace, func() { config, err = m.config() }); waited != nil {
		return nil, nil, fmt.Errorf("%w: the namespace has had no turn to make a connection: %w", errNoAnswer, waited)
	}
	if err != nil {
		return nil, nil, err
	}
	rt, release = t.get(namespace, key, config, poolWeight+2*(len(m.cert)+len(m.key)+len(m.ca)))
	return rt, release, nil
}

// get returns a pool, which it creates with config if necessary. It returns nil if there is no pool and no config.
func (t *transports) get(
	namespace string, key [32]byte, config *tls.Config, weight int,
) (rt http.RoundTripper, release func()) {
	var evicted []*pool
	defer func() { closeIdle(evicted) }() // after the lock is released
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.spaces[namespace]
	if s == nil && config == nil {
		return nil, nil
	}
	if s == nil {
		s = &poolSpace{namespace: namespace, byKey: map[[32]byte]*list.Element{}}
		if t.spaces == nil {
			t.spaces = map[string]*poolSpace{}
		}
		t.spaces[namespace] = s
	}
	element := s.byKey[key]
	if element == nil {
		if config == nil {
			return nil, nil
		}
		element = s.recent.PushFront(&pool{key: key, transport: t.newTransport(s, config), weight: weight})
		s.byKey[key] = element
		s.weight += weight
		t.weight += weight
	}
	s.recent.MoveToFront(element)
	p := element.Value.(*pool)
	p.users++
	evicted = t.evict(maxPools)
	return t.fenced(namespace, t.guarded(p.transport)), func() { t.release(p) }
}

func (t *transports) release(p *pool) {
	t.mu.Lock()
	p.users--
	idle := p.users == 0 && p.evicted
	t.mu.Unlock()
	if idle {
		p.transport.CloseIdleConnections()
	}
}

// evict drops pools until their weight is at most keep. The caller closes their idle connections after it has released
// mu.
func (t *transports) evict(keep int) (evicted []*pool) {
	for t.weight > keep {
		var most *poolSpace
		for _, s := range t.spaces {
			if most == nil || s.weight > most.weight {
				most = s
			}
		}
		p := most.recent.Remove(most.recent.Back()).(*pool)
		delete(most.byKey, p.key)
		most.weight -= p.weight
		t.weight -= p.weight
		t.forget(most)
		p.evicted = true
		evicted = append(evicted, p)
	}
	return evicted
}

// forget drops a namespace without pools and connections.
func (t *transports) forget(s *poolSpace) {
	if t.spaces[s.namespace] == s && s.recent.Len() == 0 && s.connections == 0 {
		delete(t.spaces, s.namespace)
	}
}

func closeIdle(pools []*pool) {
	for _, p := range pools {
		p.transport.CloseIdleConnections()
	}
}

// close closes all idle connections. The others close after their answers have been read.
func (t *transports) close() {
	t.mu.Lock()
	evicted := t.evict(0)
	t.mu.Unlock()
	closeIdle(evicted)
}

// dialer counts the connections of a namespace, and refuses one that would leave too few for others.
func (t *transports) dialer(
	s *poolSpace, dial func(context.Context, string, string) (net.Conn, error),
) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !t.count(s) {
			closeIdle(t.pools(s))
			if !t.count(s) {
				return nil, errConnections
			}
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			t.uncount(s)
			return nil, err
		}
		return &counted{Conn: conn, closed: sync.OnceFunc(func() { t.uncount(s) })}, nil
	}
}

func (t *transports) count(s *poolSpace) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.connections >= maxConnections-t.connections {
		return false
	}
	s.connections++
	t.connections++
	return true
}

func (t *transports) uncount(s *poolSpace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.connections--
	t.connections--
	t.forget(s)
}

func (t *transports) pools(s *poolSpace) (all []*pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := s.recent.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*pool))
	}
	return all
}

// counted is a connection that is part of the count.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
