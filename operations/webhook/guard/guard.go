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

// RefusedError names a refused target and the reason. It matches ErrRefused.
type RefusedError struct {
	Host   string     // as given by the caller, without port
	Addr   netip.Addr // the resolved address; the zero Addr if the name was refused
	Reason string     // the kind of address, for example "loopback"
}

func (e *RefusedError) Error() string {
	if !e.Addr.IsValid() || e.Addr.String() == e.Host {
		return fmt.Sprintf("target refused: %s is a %s address", e.Host, e.Reason)
	}
	return fmt.Sprintf("target refused: %s resolves to %s, a %s address", e.Host, e.Addr, e.Reason)
}

// Is matches ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Options configures the allowed and refused targets. An earlier field takes precedence over a later one.
type Options struct {
	// Never returns addresses with ports that no option can allow: those of the API server. The guard calls it for each
	// connection, so it must not block. A loopback address stands for all loopback and unspecified addresses with that
	// port. Nil: none.
	Never func() []netip.AddrPort
	// NeverHosts are names with ports ("api.example.com:6443") that no option can allow, whatever they resolve to:
	// those of the API server. They cover requests whose name a proxy resolves, and names that resolve to a different
	// address each time.
	NeverHosts []string
	// Deny refuses targets, in the forms of Allow. A name refuses connections by that name, but not to its addresses
	// under another name.
	Deny []string
	// Allow allows targets: a CIDR (10.0.0.0/8), an address, or a host name. A host name is trusted whatever it
	// resolves to.
	Allow []string
	// Inside returns public-looking ranges that are internal here, such as the services and pods of a cluster. The
	// guard calls it for each connection, so it must not block. Nil: none.
	Inside func() []netip.Prefix
}

// Guard decides which addresses a client may connect to. The zero value allows public addresses only. It is safe for
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

// New returns a Guard that allows the given targets besides public addresses. See Options.Allow.
func New(allow ...string) (*Guard, error) { return NewWith(Options{Allow: allow}) }

// NewWith returns a Guard. It fails if a target is not a CIDR, an address or a name.
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

// has reports whether t contains the target, by name or by address.
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

// Check returns nil if host (a name or a literal) may be connected to at addr, or a *RefusedError. Check ignores ports,
// which only the connection checks: see Options.Never.
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

// refuses returns the kind of a refused target, or "" if it is allowed.
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

// apiServer is the reason for a target that no option can allow.
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

// isOwn reports whether addr stands for this machine. Systems connect the unspecified addresses to loopback.
func isOwn(addr netip.Addr) bool { return addr.IsLoopback() || addr.IsUnspecified() }

// CheckURL checks a URL without resolving its host: literals, names that stand for this machine, and those of
// Options.NeverHosts. It is for requests whose host a proxy resolves, where the guard never sees the address.
func (g *Guard) CheckURL(u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return g.checkUnresolved(u.Hostname(), port)
}

func (g *Guard) checkUnresolved(host, port string) error {
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		number, _ := strconv.ParseUint(port, 10, 16) // 0, which is no valid port, if empty
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
		// some resolvers read 2130706433, 0x7f.1 and 127.1 as addresses
		return &RefusedError{Host: host, Reason: "malformed"}
	}
	return nil
}

// DialContext connects like net.Dialer. The guard checks each resolved address before the connection.
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
