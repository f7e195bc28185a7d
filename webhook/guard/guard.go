package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// ErrRefused matches every refusal of a Guard.
var ErrRefused = errors.New("target refused")

// RefusedError says which target was refused and why. errors.Is(err, ErrRefused) holds.
type RefusedError struct {
	Host   string     // as named by the caller, without port
	Addr   netip.Addr // the address the name stood for; the zero Addr if it was refused by name
	Reason string     // what kind of address that is, for example "loopback"
}

func (e *RefusedError) Error() string {
	if !e.Addr.IsValid() || e.Addr.String() == e.Host {
		return fmt.Sprintf("target refused: %s is a %s address", e.Host, e.Reason)
	}
	return fmt.Sprintf("target refused: %s resolves to %s, a %s address", e.Host, e.Addr, e.Reason)
}

// Is makes the error match ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Guard decides which addresses may be connected to. The zero value allows public addresses only. It is immutable and safe
// for concurrent use.
type Guard struct {
	prefixes []netip.Prefix
	hosts    map[string]bool
}

// New makes a Guard that allows, besides public addresses, the given targets: a CIDR (10.0.0.0/8), an address, or the name of a
// host, which is then trusted whatever it resolves to.
func New(allow ...string) (*Guard, error) {
	g := &Guard{hosts: map[string]bool{}}
	for _, target := range allow {
		if err := g.allow(strings.TrimSpace(target)); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *Guard) allow(target string) error {
	if prefix, err := netip.ParsePrefix(target); err == nil {
		if addr := prefix.Addr(); addr.Is4In6() {
			if prefix.Bits() < 96 {
				return fmt.Errorf("cannot allow target %q: it covers more than the IPv4 addresses it is written in", target)
			}
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		g.prefixes = append(g.prefixes, prefix.Masked())
		return nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(target, "[]")); err == nil {
		addr = addr.WithZone("").Unmap()
		g.prefixes = append(g.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	host := canonicalHost(target)
	if host == "" || strings.ContainsAny(host, "/:@ \t\r\n?#*") {
		return fmt.Errorf("cannot allow target %q: neither a CIDR nor an address nor the name of a host", target)
	}
	g.hosts[host] = true
	return nil
}

// Check tells whether host (a name or a literal) may be connected to at addr: nil, or a *RefusedError.
func (g *Guard) Check(host string, addr netip.Addr) error {
	if g.hosts[canonicalHost(host)] {
		return nil
	}
	addr = addr.WithZone("").Unmap()
	reason := special(addr)
	if reason == "" || g.allowsAddr(addr) {
		return nil
	}
	return &RefusedError{Host: host, Addr: addr, Reason: reason}
}

// CheckHost judges what can be judged without resolving: literals, and names that stand for this machine. It is for requests that
// a proxy resolves, where the guard never sees the address.
func (g *Guard) CheckHost(host string) error {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return g.Check(host, addr)
	}
	name := canonicalHost(host)
	if g.hosts[name] {
		return nil
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return &RefusedError{Host: host, Reason: "loopback"}
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; isNumeric(last) {
		return &RefusedError{Host: host, Reason: "malformed"} // 2130706433, 0x7f.1, 127.1: some resolvers take them for addresses
	}
	return nil
}

func (g *Guard) allowsAddr(addr netip.Addr) bool {
	for _, prefix := range g.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	if v4, ok := embedded(addr); ok {
		return g.allowsAddr(v4)
	}
	return false
}

// DialContext connects like net.Dialer, with the guard between the resolution of the name and the connection.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("cannot dial: %w", err)
	}
	dialer := net.Dialer{
		Timeout:   10 * time.Second,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return &RefusedError{Host: host, Reason: "non-TCP"}
			}
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("cannot judge the address: %w", err)
			}
			return g.Check(host, at.Addr())
		},
	}
	return dialer.DialContext(ctx, network, address)
}

func canonicalHost(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isNumeric follows the URL Standard (WHATWG, "ends in a number"): digits, or 0x and hexadecimal digits.
func isNumeric(label string) bool {
	digits := "0123456789"
	if len(label) > 1 && label[0] == '0' && label[1] == 'x' {
		label, digits = label[2:], "0123456789abcdef"
		if label == "" {
			return true
		}
	}
	return label != "" && strings.Trim(label, digits) == ""
}
