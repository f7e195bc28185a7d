package controller

import "net"

// addressOf returns the address at which other replicas can reach this one, or "" if unknown. For a listener on all
// addresses it returns the first address that is not local to this machine.
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
