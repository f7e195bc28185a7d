package e2e_test

import (
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// link is a proxy between one replica and the API server. While it is cut, it drops all bytes in both directions and
// closes no connection, like an unplugged cable.
type link struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	passing chan struct{} // closed while data passes
	closed  bool
}

// newLink returns a link, and a kubeconfig that uses it.
func newLink(t *testing.T, kubeconfig string) (l *link, through string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &link{listener: listener, conns: map[net.Conn]struct{}{}, passing: make(chan struct{})}
	close(l.passing)
	for _, c := range config.Clusters {
		server, err := url.Parse(c.Server)
		if err != nil {
			t.Fatal(err)
		}
		l.to = server.Host
		server.Host = listener.Addr().String()
		c.Server = server.String()
	}
	through = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, through); err != nil {
		t.Fatal(err)
	}
	l.running.Go(l.accept)
	t.Cleanup(l.close)
	return l, through
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.to)
		if err != nil {
			from.Close()
			continue
		}
		if !l.keep(from, to) {
			return
		}
		l.running.Go(func() { l.pass(from, to) })
		l.running.Go(func() { l.pass(to, from) })
	}
}

// keep records connections, so that close ends them.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if l.closed {
			c.Close()
			continue
		}
		l.conns[c] = struct{}{}
	}
	return !l.closed
}

// pass forwards bytes while the link is not cut, until one side ends.
func (l *link) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.mu.Lock()
		passing := l.passing
		l.mu.Unlock()
		<-passing
		if _, e := to.Write(buffer[:n]); e != nil || err != nil {
			return
		}
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passing = make(chan struct{})
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.healLocked()
}

func (l *link) healLocked() {
	select {
	case <-l.passing:
	default:
		close(l.passing)
	}
}

func (l *link) close() {
	l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.healLocked()
	for c := range l.conns {
		c.Close()
	}
	l.mu.Unlock()
	l.running.Wait()
}
