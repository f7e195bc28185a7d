package serve

import (
	"crypto"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// handshakes bounds the processors that are at work on TLS handshakes, which cost a server a hundred times what they
// cost a client: to half of them, at least one. Those that wait take turns by client, the earliest of each first.
// Nothing is held while the network is waited for: a turn is over at the latest when its connection is read from.
type handshakes struct {
	mu      sync.Mutex
	free    int
	queues  map[string][]*turn // of those that wait, by client; none is empty
	clients []string           // those with a queue, the next one first
	held    map[net.Conn]struct{}
}

// turn is a connection that waits.
type turn struct {
	conn net.Conn
	come chan struct{}
}

// handshakePatience is how long a handshake may wait for its turn.
const handshakePatience = 5 * time.Second

var errCrowded = errors.New("too many TLS handshakes at a time")

func newHandshakes() *handshakes {
	return &handshakes{
		free: max(1, runtime.GOMAXPROCS(0)/2), queues: make(map[string][]*turn),
		held: make(map[net.Conn]struct{}),
	}
}

// shaken is a connection on which hands are shaken.
type shaken struct {
	net.Conn
	turns *handshakes
	done  atomic.Bool // what is left of the handshake costs little
}

// Read implements net.Conn. The client may let the server wait.
func (s *shaken) Read(p []byte) (int, error) {
	if !s.done.Load() {
		s.turns.end(s)
	}
	return s.Conn.Read(p)
}

// shaking is a listener for such connections.
type shaking struct {
	net.Listener
	turns *handshakes
}

// Accept implements net.Listener.
func (s *shaking) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.turns.watched(conn), nil
}

func (h *handshakes) watched(conn net.Conn) net.Conn { return &shaken{Conn: conn, turns: h} }

// config returns how the server shakes hands as base says, in turns, on connections that are watched. The turn comes
// when the client has said what it wants, and once more when it was asked to say it better (HelloRetryRequest). It is
// over when the server has signed, or has taken up a session from before: what is left after that costs little.
func (h *handshakes) config(base *tls.Config) *tls.Config {
	base = base.Clone()
	if len(base.NextProtos) == 0 {
		base.NextProtos = []string{"h2", "http/1.1"}
	}
	turns := base.Clone()
	turns.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own := base
		if base.GetConfigForClient != nil {
			chosen, err := base.GetConfigForClient(hello)
			if err != nil {
				return nil, err
			}
			if chosen != nil {
				own = chosen
			}
		}
		if err := h.begin(hello.Conn); err != nil {
			return nil, err
		}
		return h.ending(own, hello.Conn), nil
	}
	return turns
}

// ending is a configuration that tells of the end of one handshake's turn.
func (h *handshakes) ending(base *tls.Config, conn net.Conn) *tls.Config {
	own := base.Clone()
	own.GetConfigForClient = nil
	own.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		var cert *tls.Certificate
		var err error
		if base.GetCertificate != nil {
			cert, err = base.GetCertificate(hello)
		}
		if cert == nil && err == nil && len(base.Certificates) == 1 { // of several the server chooses itself
			cert = &base.Certificates[0]
		}
		if err == nil {
			err = h.goOn(conn)
		}
		if err != nil || cert == nil {
			return nil, err
		}
		telling := *cert
		if signer, ok := cert.PrivateKey.(crypto.Signer); ok {
			telling.PrivateKey = &ender{signer, func() { h.end(conn) }}
		}
		return &telling, nil
	}
	if len(own.Certificates) == 1 { // else nobody would be asked where the client names no host
		own.Certificates = nil
	}
	own.VerifyConnection = func(state tls.ConnectionState) error {
		if s, ok := conn.(*shaken); ok {
			s.done.Store(true)
		}
		h.end(conn)
		if base.VerifyConnection != nil {
			return base.VerifyConnection(state)
		}
		return nil
	}
	return own
}

// ender is a key that tells when it has signed.
type ender struct {
	crypto.Signer
	signed func()
}

// Sign implements crypto.Signer.
func (e *ender) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	defer e.signed()
	return e.Signer.Sign(rand, digest, opts)
}

// goOn waits for another turn of a connection whose turn is over.
func (h *handshakes) goOn(conn net.Conn) error {
	h.mu.Lock()
	_, held := h.held[conn]
	h.mu.Unlock()
	if held {
		return nil
	}
	return h.begin(conn)
}

// begin waits for the turn of a connection. It has to be followed by end.
func (h *handshakes) begin(conn net.Conn) error {
	client, own := Client(conn.RemoteAddr().String()), &turn{conn, make(chan struct{})}
	h.mu.Lock()
	if h.free > 0 {
		h.free--
		h.held[conn] = struct{}{}
		h.mu.Unlock()
		return nil
	}
	if len(h.queues[client]) == 0 {
		h.clients = append(h.clients, client)
	}
	h.queues[client] = append(h.queues[client], own)
	h.mu.Unlock()
	timer := time.NewTimer(handshakePatience)
	defer timer.Stop()
	select {
	case <-own.come:
		return nil
	case <-timer.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, now := h.held[conn]; now {
		return nil
	}
	h.queues[client] = slices.DeleteFunc(h.queues[client], func(t *turn) bool { return t == own })
	if len(h.queues[client]) == 0 {
		delete(h.queues, client)
		h.clients = slices.DeleteFunc(h.clients, func(c string) bool { return c == client })
	}
	return errCrowded
}

// changed is told of the states of connections by the server: a handshake that has failed has had its turn, too.
func (h *handshakes) changed(c net.Conn, state http.ConnState) {
	if state != http.StateNew {
		h.end(plain(c))
	}
}

// end ends the turn of a connection, if it has one.
func (h *handshakes) end(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.held[conn]; !ok {
		return
	}
	delete(h.held, conn)
	if len(h.clients) == 0 {
		h.free++
		return
	}
	client := h.clients[0]
	h.clients = h.clients[1:]
	next := h.queues[client][0]
	if h.queues[client] = h.queues[client][1:]; len(h.queues[client]) > 0 {
		h.clients = append(h.clients, client)
	} else {
		delete(h.queues, client)
	}
	h.held[next.conn] = struct{}{}
	close(next.come)
}
