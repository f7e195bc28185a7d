package serve

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/serve/servetest"
)

// from is a connection from an address.
type from struct {
	net.Conn
	addr string
}

func (f from) RemoteAddr() net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", f.addr)
	if err != nil {
		panic(err)
	}
	return addr
}

// TestHandshakesTakeTurns: handshakes of one client wait for each other, and those of other clients come next. A
// handshake that has waited for too long is rejected.
func TestHandshakesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHandshakes()
		h.free = 1
		var mu sync.Mutex
		var order []string
		conns := map[string]net.Conn{}
		begin := func(name, addr string) {
			conn := &from{addr: addr}
			conns[name] = conn
			go func() {
				err := h.begin(conn)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name += " " + err.Error()
				}
				order = append(order, name)
			}()
			synctest.Wait()
		}
		for i := range 4 {
			begin(fmt.Sprint("flood", i), "10.0.0.1:1")
		}
		begin("other", "10.0.0.2:1")
		begin("also", "10.0.0.3:1")
		for _, ended := range []string{"flood0", "flood0", "flood1", "other"} { // the second flood0 holds no turn
			h.end(conns[ended])
			synctest.Wait()
		}
		time.Sleep(handshakePatience + time.Second) // flood2 and flood3 give up, in either order
		synctest.Wait()
		begin("late", "10.0.0.1:1")
		h.end(conns["also"])
		synctest.Wait()
		h.end(conns["late"])
		want := []string{
			"flood0", "flood1", "other", "also", "flood2 " + errCrowded.Error(), "flood3 " + errCrowded.Error(),
			"late",
		}
		if len(order) == len(want) && order[4] > order[5] {
			order[4], order[5] = order[5], order[4]
		}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if h.free != 1 || len(h.held)+h.waiting.Len() != 0 {
			t.Errorf("left over: %+v", h)
		}
	})
}

// TestStoppedHandshakesBlockNoClient: a client that stops at any point of a handshake blocks no other client. This
// holds for each version, with or without a session.
func TestStoppedHandshakesBlockNoClient(t *testing.T) {
	t.Parallel()
	cert, key := servetest.Certificate(t, "loopback", time.Time{}, time.Time{})
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	signed := make(chan struct{}, 1000)
	pair.PrivateKey = &ender{pair.PrivateKey.(crypto.Signer), func() { signed <- struct{}{} }}
	h := newHandshakes()
	h.free = 1
	config := h.config(&tls.Config{Certificates: []tls.Certificate{pair}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener = &shaking{listener, h}
	server := &http.Server{
		TLSConfig: config, ConnState: h.changed,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	stopped := make(chan error, 1)
	go func() { stopped <- server.ServeTLS(listener, "", "") }()
	defer func() {
		server.Close()
		if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	sessions := tls.NewLRUClientSessionCache(8)
	get := func(version uint16) {
		t.Helper()
		transport := &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots, MaxVersion: version, ClientSessionCache: sessions},
		}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get(
			"https://" + listener.Addr().String(),
		)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // empty
		resp.Body.Close()
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		get(version)
		get(version) // with the session of the previous request
		for range 3 {
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for len(signed) > 0 {
				<-signed
			}
			client := tls.Client(&mute{Conn: conn, writes: 1},
				&tls.Config{RootCAs: roots, ServerName: "localhost", MaxVersion: version})
			refused := make(chan error, 1)
			go func() { refused <- client.Handshake() }() // ends with the connection
			select {
			case <-signed:
			case err := <-refused:
				t.Fatal(err)
			}
		}
		get(version)
	}
	stray, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	if _, err := stray.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	get(tls.VersionTLS13)
}

// TestRetriedHandshakesBlockNoClient: the server holds no turn while it waits for another key from a client
// (HelloRetryRequest). The rest of the handshake takes a turn like any other.
func TestRetriedHandshakesBlockNoClient(t *testing.T) {
	t.Parallel()
	for name, with := range map[string]func(*tls.Config, tls.Certificate){
		"Certificates": func(c *tls.Config, pair tls.Certificate) { c.Certificates = []tls.Certificate{pair} },
		"GetCertificate": func(c *tls.Config, pair tls.Certificate) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cert, key := servetest.Certificate(t, "loopback", time.Time{}, time.Time{})
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				h := newHandshakes()
				h.free = 1
				base := &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP384}} // clients name other curves first
				with(base, pair)
				config := h.config(base)
				begin := func() (conn net.Conn, again func(), shaken <-chan error) {
					near, far := net.Pipe()
					asked, resume := make(chan struct{}), make(chan struct{})
					patient := &hesitant{Conn: far, asked: asked, again: resume, got: make(chan []byte, 64)}
					client := tls.Client(patient, &tls.Config{InsecureSkipVerify: true})
					conn = h.watched(&from{near, "10.0.0.1:1"})
					ended := make(chan error, 1)
					go func() {
						server := tls.Server(conn, config)
						ended <- server.Handshake()
						h.changed(server, http.StateActive)
						near.Close()
					}()
					go patient.receive()
					go func() { _ = client.Handshake() }() // the server reports whether it has succeeded
					<-asked
					synctest.Wait()
					return conn, sync.OnceFunc(func() { close(resume) }), ended
				}
				var waiting []func()
				var all []<-chan error
				for range 3 { // each handshake would wait for the previous one
					_, again, shaken := begin()
					waiting, all = append(waiting, again), append(all, shaken)
				}
				if h.free != 1 {
					t.Error("a turn is held while the server waits for the client")
				}
				other := &from{addr: "10.0.0.2:1"}
				if err := h.begin(other); err != nil {
					t.Fatal(err)
				}
				for _, again := range waiting {
					again()
				}
				synctest.Wait()
				for i, shaken := range all {
					select {
					case err := <-shaken:
						t.Errorf("handshake %d did not wait for its turn: %v", i, err)
					default:
					}
				}
				h.end(other)
				for _, shaken := range all {
					if err := <-shaken; err != nil {
						t.Error(err)
					}
				}
				synctest.Wait()
				if h.free != 1 || len(h.held)+h.waiting.Len() != 0 {
					t.Errorf("left over: %+v", h)
				}
			})
		})
	}
}

// hesitant is the connection of a client that is asked for another key, and waits before it sends one. Data of the
// server is queued meanwhile.
type hesitant struct {
	net.Conn
	asked, again chan struct{}
	writes       int
	got          chan []byte // closed at the end
	rest         []byte
}

func (c *hesitant) receive() {
	defer close(c.got)
	for {
		p := make([]byte, 4096)
		n, err := c.Conn.Read(p)
		if err != nil {
			return
		}
		c.got <- p[:n]
	}
}

func (c *hesitant) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		got, ok := <-c.got
		if !ok {
			return 0, io.EOF
		}
		c.rest = got
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *hesitant) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		close(c.asked)
		<-c.again
	}
	return c.Conn.Write(p)
}

// mute drops all data after a number of writes.
type mute struct {
	net.Conn
	writes int
}

func (m *mute) Write(p []byte) (int, error) {
	if m.writes--; m.writes < 0 {
		return len(p), nil
	}
	return m.Conn.Write(p)
}
