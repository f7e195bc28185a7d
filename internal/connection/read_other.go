//go:build !linux || race || msan || asan

package connection

import "net"

// dialDirect returns the dial function of a dialer. See the implementation for Linux.
func dialDirect(d *net.Dialer) dialer { return d.DialContext }
