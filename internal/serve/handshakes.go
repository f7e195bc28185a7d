package serve

import (
	"crypto"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// handshakes bounds concurrent TLS handshakes to half of the processors, at least one. A handshake costs a server a
// hundred times as much as a client. Clients take turns in a queue, and the connections of one client are served in
// order. A connection never holds its turn while it waits for the network: the turn ends at the latest with the next
// read.
type handshakes struct {
	mu      sync.Mutex
	free    int
	waiting fair.Queue[string, turn] // by client
	held    map[net.Conn]struct{}
}

// turn is a waiting connection.
type turn struct {
	conn net.Conn
	come chan struct{}
}

// handshakePatience is the maximum wait of a handshake for its turn.
const handshakePatience = 5 * time.Second

var errCrowded = errors.New("too many TLS handshakes at a time")

func newHandshakes() *handshakes {
	return &handshakes{free: max(1, runtime.GOMAXPROCS(0)/2), held: make(map[net.Conn]struct{})}
}

// shaken is a connection whose handshake is limited.
type shaken struct {
	net.Conn
	turns *handshakes
	done  atomic.Bool // the rest of the handshake is cheap
}

// Read implements net.Conn. During the handshake it ends the turn of the connection, because the client may send
// slowly.
func (s *shaken) Read(p []byte) (int, error) {
	if !s.done.Load() {
		s.turns.end(s)
	}
	return s.Conn.Read(p)
}

// shaking is a listener that returns such connections.
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

// config returns a TLS configuration like base that limits handshakes. A turn begins after the ClientHello, and a
// second one after a HelloRetryRequest. It ends when the server has signed or resumed a session. The rest of the
// handshake is cheap.
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

// ending returns a configuration for one handshake that ends its turn.
func (h *handshakes) ending(base *tls.Config, conn net.Conn) *tls.Config {
	own := base.Clone()
	own.GetConfigForClient = nil
	own.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		var cert *tls.Certificate
		var err error
		if base.GetCertificate != nil {
			cert, err = base.GetCertificate(hello)
		}
		if cert == nil && err == nil && len(base.Certificates) == 1 { // of several certificates crypto/tls chooses one
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
	if len(own.Certificates) == 1 { // otherwise crypto/tls does not call GetCertificate if the client sends no server name
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

// ender is a key that calls signed after it has signed.
type ender struct {
	crypto.Signer
	signed func()
}

// Sign implements crypto.Signer.
func (e *ender) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	defer e.signed()
	return e.Signer.Sign(rand, digest, opts)
}

// goOn waits for another turn if the turn of the connection has ended.
func (h *handshakes) goOn(conn net.Conn) error {
	h.mu.Lock()
	_, held := h.held[conn]
	h.mu.Unlock()
	if held {
		return nil
	}
	return h.begin(conn)
}

// begin waits for the turn of a connection. The caller must call end.
func (h *handshakes) begin(conn net.Conn) error {
	client := Client(conn.RemoteAddr().String())
	h.mu.Lock()
	if h.free > 0 {
		h.free--
		h.held[conn] = struct{}{}
		h.mu.Unlock()
		return nil
	}
	own := h.waiting.Push(client, turn{conn, make(chan struct{})})
	h.mu.Unlock()
	timer := time.NewTimer(handshakePatience)
	defer timer.Stop()
	select {
	case <-own.Value.come:
		return nil
	case <-timer.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, now := h.held[conn]; now {
		return nil
	}
	own.Remove()
	return errCrowded
}

// changed is the ConnState hook of the server. It also ends the turn of a failed handshake.
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
	next := h.waiting.Next(nil)
	if next == nil {
		h.free++
		return
	}
	h.held[next.Value.conn] = struct{}{}
	close(next.Value.come)
}
