package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
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

// Options say which targets are allowed besides public addresses, and which never. What is said further up beats what
// is said below.
type Options struct {
	// Never are addresses and ports that nothing allows: those of the API server itself. It is asked at each connection,
	// and must not block. One on loopback stands for all addresses of the machine at which a server on that port may
	// answer: loopback and the unspecified ones. Nil: none.
	Never func() []netip.AddrPort
	// NeverHosts are names with ports ("api.example.com:6443") that nothing allows, whatever they resolve to: those of the
	// API server, for requests whose name a proxy resolves, or resolves to another address each time.
	NeverHosts []string
	// Deny refuses targets, in the spellings of Allow. A name refuses what is called by that name, and not its addresses
	// under another.
	Deny []string
	// Allow allows targets: a CIDR (10.0.0.0/8), an address, or the name of a host, which is then trusted whatever it
	// resolves to.
	Allow []string
	// Inside are ranges that are not public here though they look like it, such as the services and pods of a cluster. It
	// is asked at each connection, and must not block. Nil: none.
	Inside func() []netip.Prefix
}

// Guard decides which addresses may be connected to. The zero value allows public addresses only. It is safe for
// concurrent use.
type Guard struct {
	never       func() []netip.AddrPort
	neverHosts  map[string]bool // name:port
	inside      func() []netip.Prefix
	deny, allow targets
}

// targets are addresses and names.
type targets struct {
	prefixes []netip.Prefix
	hosts    map[string]bool
}

// New makes a Guard that allows the given targets besides public addresses, see Options.Allow.
func New(allow ...string) (*Guard, error) { return NewWith(Options{Allow: allow}) }

// NewWith makes a Guard. It fails on targets that are neither CIDR nor address nor name.
func NewWith(o Options) (*Guard, error) {
	g := &Guard{never: o.Never, neverHosts: map[string]bool{}, inside: o.Inside}
	for _, each := range o.NeverHosts {
		host, port, err := net.SplitHostPort(each)
		if err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("cannot deny target %q: not a name with a port", each)
		}
		g.neverHosts[net.JoinHostPort(canonicalHost(host), port)] = true
	}
	for _, each := range []struct {
		into *targets
		verb string
		from []string
	}{{&g.deny, "deny", o.Deny}, {&g.allow, "allow", o.Allow}} {
		each.into.hosts = map[string]bool{}
		for _, target := range each.from {
			if err := each.into.add(strings.TrimSpace(target)); err != nil {
				return nil, fmt.Errorf("cannot %s target %q: %w", each.verb, target, err)
			}
		}
	}
	return g, nil
}

func (t *targets) add(target string) error {
	if prefix, err := netip.ParsePrefix(target); err == nil {
		if addr := prefix.Addr(); addr.Is4In6() {
			if prefix.Bits() < 96 {
				return errors.New("it covers more than the IPv4 addresses it is written in")
			}
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		t.prefixes = append(t.prefixes, prefix.Masked())
		return nil
	}
	if addr, err := netip.ParseAddr(strings.Trim(target, "[]")); err == nil {
		addr = addr.WithZone("").Unmap()
		t.prefixes = append(t.prefixes, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	host := canonicalHost(target)
	if host == "" || strings.ContainsAny(host, "/:@ \t\r\n?#*") {
		return errors.New("neither a CIDR nor an address nor the name of a host")
	}
	t.hosts[host] = true
	return nil
}

// has reports whether a target is among them, by name or address.
func (t *targets) has(host string, addr netip.Addr) bool {
	return t.hosts[canonicalHost(host)] || t.hasAddr(addr)
}

func (t *targets) hasAddr(addr netip.Addr) bool {
	for _, prefix := range t.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	if v4, ok := embedded(addr); ok {
		return t.hasAddr(v4)
	}
	return false
}

// Check tells whether host (a name or a literal) may be connected to at addr: nil, or a *RefusedError. Ports count at
// the connection only, see Options.Never.
func (g *Guard) Check(host string, addr netip.Addr) error {
	return g.check(host, netip.AddrPortFrom(addr, 0))
}

func (g *Guard) check(host string, at netip.AddrPort) error {
	addr := at.Addr().WithZone("").Unmap()
	reason := g.refuses(host, netip.AddrPortFrom(addr, at.Port()))
	if reason == "" {
		return nil
	}
	return &RefusedError{Host: host, Addr: addr, Reason: reason}
}

// refuses says of what kind a target is that may not be connected to.
func (g *Guard) refuses(host string, at netip.AddrPort) string {
	if g.isAPIServer(host, at) {
		return apiServer
	}
	if g.deny.has(host, at.Addr()) {
		return "denied"
	}
	if g.allow.has(host, at.Addr()) {
		return ""
	}
	if reason := special(at.Addr()); reason != "" {
		return reason
	}
	if g.inside != nil {
		for _, prefix := range g.inside() {
			if v4, embeds := embedded(at.Addr()); prefix.Contains(at.Addr()) || embeds && prefix.Contains(v4) {
				return "cluster-internal"
			}
		}
	}
	return ""
}

// apiServer is the reason of what nothing allows.
const apiServer = "forbidden (API server)"

func (g *Guard) isAPIServer(host string, at netip.AddrPort) bool {
	if g.isAPIServerName(host, strconv.Itoa(int(at.Port()))) {
		return true
	}
	if g.never == nil {
		return false
	}
	v4, embeds := embedded(at.Addr())
	for _, never := range g.never() {
		if never.Port() != at.Port() {
			continue
		}
		addr := never.Addr().WithZone("").Unmap()
		if addr == at.Addr() || embeds && addr == v4 || addr.IsLoopback() && (isOwn(at.Addr()) || embeds && isOwn(v4)) {
			return true
		}
	}
	return false
}

func (g *Guard) isAPIServerName(host, port string) bool {
	return g.neverHosts[net.JoinHostPort(canonicalHost(host), port)]
}

// isOwn tells of addresses that stand for this machine: systems connect the unspecified ones to loopback.
func isOwn(addr netip.Addr) bool { return addr.IsLoopback() || addr.IsUnspecified() }

// CheckURL judges what can be judged without resolving: literals, names that stand for this machine, and those of
// Options.NeverHosts. It is for requests that a proxy resolves, where the guard never sees the address.
func (g *Guard) CheckURL(u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return g.checkUnresolved(u.Hostname(), port)
}

func (g *Guard) checkUnresolved(host, port string) error {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		number, _ := strconv.ParseUint(port, 10, 16) // 0, at which nobody listens, where there is none
		return g.check(host, netip.AddrPortFrom(addr, uint16(number)))
	}
	name := canonicalHost(host)
	if g.isAPIServerName(name, port) {
		return &RefusedError{Host: host, Reason: apiServer}
	}
	if g.deny.hosts[name] {
		return &RefusedError{Host: host, Reason: "denied"}
	}
	if g.allow.hosts[name] {
		return nil
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return &RefusedError{Host: host, Reason: "loopback"}
	}
	if last := name[strings.LastIndexByte(name, '.')+1:]; isNumeric(last) {
		// 2130706433, 0x7f.1, 127.1: some resolvers take them for addresses
		return &RefusedError{Host: host, Reason: "malformed"}
	}
	return nil
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
			return g.check(host, at)
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
