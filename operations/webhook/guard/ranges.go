package guard

import "net/netip"

// rangeOf is a non-public block of the IANA special-purpose address registries (RFC 6890).
type rangeOf struct {
	prefix netip.Prefix
	reason string
}

var ranges4 = []rangeOf{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "private (carrier-grade NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata"}, // Azure's platform address, from public space
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"}, // includes the metadata address 169.254.169.254
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignment"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.31.196.0/24"), "protocol assignment"},
	{netip.MustParsePrefix("192.52.193.0/24"), "protocol assignment"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("192.175.48.0/24"), "protocol assignment"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
}

var ranges6 = []rangeOf{
	{netip.MustParsePrefix("::/128"), "unspecified"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "private (NAT64)"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("2001::/23"), "protocol assignment"}, // Teredo, ORCHID, benchmarking
	{netip.MustParsePrefix("fc00::/7"), "private"},              // includes fd00:ec2::254, metadata of AWS
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private (site-local)"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour     = netip.MustParsePrefix("2002::/16")
	compatible    = netip.MustParsePrefix("::/96")
)

// special returns the kind of a non-public address, or "" for a public one. addr is unmapped and has no zone.
func special(addr netip.Addr) string {
	if !addr.IsValid() {
		return "malformed"
	}
	if addr.Is4() {
		return find(ranges4, addr)
	}
	if reason := find(ranges6, addr); reason != "" {
		return reason
	}
	v4, embeds := embedded(addr)
	if embeds {
		if reason := special(v4); reason != "" {
			return reason
		}
	}
	if globalUnicast.Contains(addr) || nat64.Contains(addr) {
		return ""
	}
	return "reserved"
}

func find(ranges []rangeOf, addr netip.Addr) string {
	for _, r := range ranges {
		if r.prefix.Contains(addr) {
			return r.reason
		}
	}
	return ""
}

// embedded returns the IPv4 address that a gateway would extract from an IPv6 address.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() {
		return netip.Addr{}, false
	}
	b := addr.As16()
	isatap := (b[8]|2) == 2 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe // RFC 5214
	switch {
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case nat64.Contains(addr), compatible.Contains(addr), isatap:
		return netip.AddrFrom4([4]byte(b[12:16])), true
	}
	return netip.Addr{}, false
}
