package main

import "net"

// addressOf is where other replicas say that this one is to be asked; empty if it listens nowhere, or nobody can tell
// by which address it is reached: one that listens on all takes the first of its own that is not for this machine only.
func addressOf(scheme string, l net.Listener) string {
	if l == nil {
		return ""
	}
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := at.AddrPort().Addr().Unmap()
	if host.IsUnspecified() {
		own, err := net.InterfaceAddrs()
		if err != nil {
			return ""
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				return scheme + "://" + (&net.TCPAddr{IP: n.IP, Port: at.Port}).String()
			}
		}
		return ""
	}
	return scheme + "://" + at.String()
}
