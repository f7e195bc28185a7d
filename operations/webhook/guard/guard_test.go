package guard_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/operations/webhook/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		addr, reason string // an empty reason means allowed
	}{
		{"8.8.8.8", ""},
		{"100.63.255.255", ""},
		{"100.128.0.0", ""},
		{"172.15.255.255", ""},
		{"172.32.0.0", ""},
		{"2606:4700::1111", ""},
		{"::ffff:8.8.8.8", ""},
		{"64:ff9b::8.8.8.8", ""},
		{"2002:808:808::1", ""},

		{"127.0.0.1", "loopback"},
		{"127.255.255.254", "loopback"},
		{"0.0.0.0", "unspecified"},
		{"0.1.2.3", "unspecified"},
		{"10.0.0.1", "private"},
		{"172.16.0.1", "private"},
		{"172.31.255.255", "private"},
		{"192.168.1.1", "private"},
		{"100.64.0.1", "private (carrier-grade NAT)"},
		{"100.100.100.200", "private (carrier-grade NAT)"},
		{"169.254.169.254", "link-local"},
		{"168.63.129.16", "metadata"},
		{"192.0.0.192", "protocol assignment"},
		{"192.0.2.1", "documentation"},
		{"198.51.100.7", "documentation"},
		{"203.0.113.9", "documentation"},
		{"198.19.0.1", "benchmarking"},
		{"192.88.99.1", "6to4 relay"},
		{"224.0.0.1", "multicast"},
		{"239.255.255.250", "multicast"},
		{"240.0.0.1", "reserved"},
		{"255.255.255.255", "reserved"},

		{"::", "unspecified"},
		{"::1", "loopback"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"fec0::1", "private (site-local)"},
		{"fc00::1", "private"},
		{"fd00:ec2::254", "private"},
		{"ff02::1", "multicast"},
		{"2001:db8::1", "documentation"},
		{"3fff::1", "documentation"},
		{"2001::1", "protocol assignment"},
		{"100::1", "reserved"},
		{"5f00::1", "reserved"},
		{"4000::1", "reserved"},

		{"::ffff:127.0.0.1", "loopback"},
		{"::ffff:169.254.169.254", "link-local"},
		{"::127.0.0.1", "loopback"},
		{"::8.8.8.8", "reserved"},
		{"64:ff9b::10.0.0.1", "private"},
		{"64:ff9b::a9fe:a9fe", "link-local"},
		{"64:ff9b:1::8.8.8.8", "private (NAT64)"},
		{"2002:7f00:1::", "loopback"},
		{"2002:a9fe:a9fe::1", "link-local"},
		{"2a00:1:2:3:0:5efe:10.0.0.1", "private"},
		{"2a00:1:2:3:200:5efe:127.0.0.1", "loopback"},
	} {
		var g guard.Guard
		err := g.Check("host.example", netip.MustParseAddr(tc.addr))
		got := ""
		var refused *guard.RefusedError
		if errors.As(err, &refused) {
			got = refused.Reason
			if !errors.Is(err, guard.ErrRefused) {
				t.Errorf("%s: %v does not match ErrRefused", tc.addr, err)
			}
		}
		if got != tc.reason {
			t.Errorf("%s: refused as %q, want %q", tc.addr, got, tc.reason)
		}
	}
	var g guard.Guard
	if g.Check("h", netip.Addr{}) == nil {
		t.Error("the zero address is allowed")
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	g, err := guard.New("10.1.0.0/16", "192.168.7.7", "::ffff:172.16.0.0/108", "[fd00::1]", "Payments.Internal.")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, host, addr string
		allowed            bool
	}{
		{"within the CIDR", "a", "10.1.2.3", true},
		{"outside of the CIDR", "a", "10.2.0.1", false},
		{"the address", "a", "192.168.7.7", true},
		{"its neighbour", "a", "192.168.7.8", false},
		{"a mapped form of an allowed one", "a", "::ffff:10.1.2.3", true},
		{"a mapped CIDR", "a", "172.16.0.1", true},
		{"NAT64 of an allowed one", "a", "64:ff9b::10.1.2.3", true},
		{"NAT64 of another", "a", "64:ff9b::10.2.2.3", false},
		{"an address in brackets", "a", "fd00::1", true},
		{"an allowed host wherever it is", "payments.internal", "127.0.0.1", true},
		{"in any case, with a final dot", "PAYMENTS.internal.", "127.0.0.1", true},
		{"not its subdomains", "x.payments.internal", "127.0.0.1", false},
	} {
		if err := g.Check(tc.host, netip.MustParseAddr(tc.addr)); (err == nil) != tc.allowed {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
	for _, bad := range []string{
		"", "http://x", "a b", "10.0.0.0/99", "*.example.com", "host:80", "::ffff:0.0.0.0/64",
		"a/b",
	} {
		if _, err := guard.New(bad); err == nil {
			t.Errorf("target %q is accepted", bad)
		}
	}
}

// TestOrder: the ban of the API server precedes denied addresses, these precede allowed ones, and these precede the
// defaults.
func TestOrder(t *testing.T) {
	t.Parallel()
	var inside []netip.Prefix
	g, err := guard.NewWith(guard.Options{
		Never:  func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:6443")} },
		Deny:   []string{"34.118.230.0/24", "10.1.1.1", "evil.example"},
		Allow:  []string{"127.0.0.0/8", "10.1.0.0/16", "34.118.224.5", "evil.example", "api.internal"},
		Inside: func() []netip.Prefix { return inside },
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(reason, host, addr, want string) {
		t.Helper()
		err := g.Check(host, netip.MustParseAddr(addr))
		var refused *guard.RefusedError
		if errors.As(err, &refused) != (want != "") || refused != nil && refused.Reason != want {
			t.Errorf("%s: got %v, want %q", reason, err, want)
		}
	}
	check("services at public addresses, before they are known", "a", "34.118.226.7", "")
	inside = []netip.Prefix{netip.MustParsePrefix("34.118.224.0/20"), netip.MustParsePrefix("2600:1900::/28")}
	check("services at public addresses", "a", "34.118.226.7", "cluster-internal")
	check("the same, embedded", "a", "64:ff9b::34.118.226.7", "cluster-internal")
	check("the same, mapped", "a", "::ffff:34.118.226.7", "cluster-internal")
	check("IPv6", "a", "2600:1900::1", "cluster-internal")
	check("an allowed address", "a", "34.118.224.5", "")
	check("denied", "a", "34.118.230.9", "denied")
	check("denied within an allowed range", "a", "10.1.1.1", "denied")
	check("allowed beside a denied range", "a", "10.1.1.2", "")
	check("a denied and allowed name", "EVIL.example.", "203.0.113.7", "denied")
	check("an allowed name", "api.internal", "34.118.226.7", "")
	dial := func(address string) error {
		conn, err := g.DialContext(t.Context(), "tcp", address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for _, address := range []string{"127.0.0.1:6443", "[::ffff:127.0.0.1]:6443"} {
		var refused *guard.RefusedError
		if err := dial(address); !errors.As(err, &refused) || refused.Reason != "forbidden (API server)" {
			t.Errorf("the API server at %s: %v", address, err)
		}
	}
	if err := dial("127.0.0.1:1"); errors.Is(err, guard.ErrRefused) {
		t.Errorf("another port of the API server's address: %v", err)
	}
}

// TestAPIServer: no option allows the API server, by any of its addresses, names and spellings. Other ports of its
// machine can be allowed.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	never := []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.1:6443"), netip.MustParseAddrPort("34.1.2.3:443"),
		netip.MustParseAddrPort("[2002:808:808::1]:443"),
	}
	g, err := guard.NewWith(guard.Options{
		Never: func() []netip.AddrPort { return never }, NeverHosts: []string{"API.example.:443", "kubernetes.default:443"},
		Allow: []string{"0.0.0.0/0", "::/0", "api.example", "kubernetes.default", "localhost"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, forbidden := range map[string]bool{
		"https://34.1.2.3": true, "http://34.1.2.3:443/x": true, "https://34.1.2.3:8443": false, "https://34.1.2.4": false,
		"https://[::ffff:34.1.2.3]": true, "https://[64:ff9b::34.1.2.3]": true, "https://[2002:808:808::1]": true,
		"https://8.8.8.8":        false,
		"https://127.0.0.1:6443": true, "https://127.0.0.2:6443": true, "https://[::1]:6443": true,
		"https://0.0.0.0:6443": true,
		"https://[::]:6443":    true, "https://[::ffff:127.0.0.1]:6443": true, "http://127.0.0.1:8090": false,
		"http://localhost:8090": false,
		"https://api.example":   true, "HTTPS://API.EXAMPLE.:443": true, "http://api.example:443": true,
		"http://api.example":             false,
		"https://kubernetes.default/api": true,
	} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.CheckURL(u); errors.Is(err, guard.ErrRefused) != forbidden {
			t.Errorf("%s through a proxy: %v", target, err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	dial := func(host string) error {
		conn, err := g.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			conn.Close()
		}
		return err
	}
	hosts := []string{"127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"}
	for _, host := range hosts {
		if err := dial(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	never = []netip.AddrPort{netip.MustParseAddrPort(net.JoinHostPort("127.0.0.1", port))} // as if the server had moved
	for _, host := range hosts {
		if err := dial(host); !errors.Is(err, guard.ErrRefused) {
			t.Errorf("the API server as %s: %v", host, err)
		}
	}
	named, err := guard.NewWith(guard.Options{
		NeverHosts: []string{"localhost:" + port}, Allow: []string{"localhost", "127.0.0.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	g = named
	if err := dial("LOCALHOST"); !errors.Is(err, guard.ErrRefused) {
		t.Errorf("the API server by its name: %v", err)
	}
	if err := dial("127.0.0.1"); err != nil {
		t.Errorf("its address, which is not listed: %v", err)
	}
	for _, bad := range []string{"api.example", ":443", "api.example:", "https://x:443"} {
		if _, err := guard.NewWith(guard.Options{NeverHosts: []string{bad}}); err == nil {
			t.Errorf("%q is taken for a name with a port", bad)
		}
	}
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	g, err := guard.New("trusted.localhost")
	if err != nil {
		t.Fatal(err)
	}
	for host, allowed := range map[string]bool{
		"example.com": true, "8.8.8.8": true, "trusted.localhost": true, "7up.example": true, "0x.example": true,
		"localhost": false, "LOCALHOST.": false, "a.localhost": false, "127.0.0.1": false, "[::1]": false, "::1": false,
		"2130706433": false, "0x7f000001": false, "127.1": false, "0177.0.0.0x1": false, "169.254.169.254": false,
	} {
		if err := g.CheckHost(host); (err == nil) != allowed {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestDial(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())

	var strict guard.Guard
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0"} {
		conn, err := strict.DialContext(context.Background(), "tcp", net.JoinHostPort(host, port))
		if err == nil {
			conn.Close()
		}
		var refused *guard.RefusedError
		if !errors.As(err, &refused) || refused.Host != host {
			t.Errorf("%s: got %v, want a refusal that names it", host, err)
		}
	}
	lenient, err := guard.New("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := lenient.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := lenient.DialContext(t.Context(), "udp", "127.0.0.1:"+port); !errors.Is(err, guard.ErrRefused) {
		t.Errorf("udp: %v", err)
	}
	if _, err := lenient.DialContext(t.Context(), "tcp", "no-port"); err == nil {
		t.Error("an address without port is dialled")
	}
}

// FuzzCheck compares the guard with the standard library's classes of addresses that are not public.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::ffff:10.0.0.1", "fe80::1%1",
		"8.8.8.8",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var g guard.Guard
		hostErr := g.CheckHost(text)
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return
		}
		checkErr := g.Check(text, addr)
		if (checkErr == nil) != (hostErr == nil) {
			t.Fatalf("Check says %v, CheckHost says %v", checkErr, hostErr)
		}
		a := addr.Unmap()
		if checkErr == nil && (!a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()) {
			t.Fatalf("%s is allowed", addr)
		}
	})
}
