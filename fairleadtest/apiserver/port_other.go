//go:build !unix

package apiserver

import "net"

// port is any TCP port of the loopback interface. Another process may get it while the server is down.
type port struct{ addr string }

func reservePort() (*port, error) { return &port{"127.0.0.1:0"}, nil }

func (p *port) release() {}

func closeListener(l net.Listener) { _ = l.Close() }
