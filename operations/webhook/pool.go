package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/fairlead-io/fairlead/internal/fair"
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
	// turn runs f in a turn of the namespace, or returns the cause of ctx if ctx ends before.
	turn func(ctx context.Context, namespace string, f func()) error

	mu          sync.Mutex
	pools       map[poolKey]*pool
	recent      fair.Queue[string, *pool] // by namespace, the least recently used first
	connections fair.Tally[string]        // by namespace, including those being dialed
}

// poolKey identifies a pool by its namespace and the fingerprint of its TLS material.
type poolKey struct {
	namespace string
	tls       [32]byte
}

type pool struct {
	key       poolKey
	transport *http.Transport
	place     fair.Item[string, *pool] // in transports.recent, unless evicted
	users     int
}

// transport returns the pool of a namespace for m. It parses certificates in a turn of the namespace. The caller must
// call release after reading the answer.
func (t *transports) transport(
	ctx context.Context, namespace string, m tlsMaterial,
) (rt http.RoundTripper, release func(), err error) {
	key := m.fingerprint()
	if rt, release = t.get(namespace, key, nil, 0); rt != nil {
		return rt, release, nil
	}
	var config *tls.Config
	if waited := t.turn(ctx, namespace, func() { config, err = m.config() }); waited != nil {
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
	id := poolKey{namespace, key}
	p := t.pools[id]
	switch {
	case p != nil:
		p.place.MoveToEnd()
	case config == nil:
		return nil, nil
	default:
		p = &pool{key: id, transport: t.newTransport(namespace, config)}
		p.place = fair.Item[string, *pool]{Value: p, Weight: weight}
		if t.pools == nil {
			t.pools = make(map[poolKey]*pool)
		}
		t.pools[id] = p
		t.recent.Add(namespace, &p.place)
	}
	p.users++
	evicted = t.evict(maxPools)
	return t.fenced(namespace, t.guarded(p.transport)), func() { t.release(p) }
}

func (t *transports) release(p *pool) {
	t.mu.Lock()
	p.users--
	idle := p.users == 0 && !p.place.Queued()
	t.mu.Unlock()
	if idle {
		p.transport.CloseIdleConnections()
	}
}

// evict drops pools until their weight is at most keep. The caller closes their idle connections after it has released
// mu.
func (t *transports) evict(keep int) (evicted []*pool) {
	for t.recent.Weight() > keep {
		p := t.recent.Largest().First().Value
		p.place.Remove()
		delete(t.pools, p.key)
		evicted = append(evicted, p)
	}
	return evicted
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
	namespace string, dial func(context.Context, string, string) (net.Conn, error),
) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if !t.count(namespace) {
			closeIdle(t.poolsOf(namespace))
			if !t.count(namespace) {
				return nil, errConnections
			}
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			t.uncount(namespace)
			return nil, err
		}
		return &counted{Conn: conn, closed: sync.OnceFunc(func() { t.uncount(namespace) })}, nil
	}
}

func (t *transports) count(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.connections.Of(namespace) >= maxConnections-t.connections.All() {
		return false
	}
	t.connections.Add(namespace, 1)
	return true
}

func (t *transports) uncount(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connections.Add(namespace, -1)
}

func (t *transports) poolsOf(namespace string) (all []*pool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for it := t.recent.Line(namespace).First(); it != nil; it = it.Next() {
		all = append(all, it.Value)
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
