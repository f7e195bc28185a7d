package apiserver

import (
	"fmt"
	"strconv"
	"strings"
)

// versioner converts revisions to the resource versions that clients see. Opaque versions are strings without an order,
// as some aggregated API servers use: only equality is meaningful.
type versioner struct{ opaque, long bool }

// longVersions is the prefix of long versions, which have more digits than any Go integer type.
const longVersions = "98765432109876543210"

// opaqueFactor is odd, so multiplication by it is invertible modulo 2^64.
const opaqueFactor uint64 = 0x9e3779b97f4a7c15

func inverse(odd uint64) uint64 {
	x := odd // Newton's iteration doubles the number of correct bits
	for range 6 {
		x *= 2 - odd*x
	}
	return x
}

func (v versioner) format(rev uint64) string {
	if v.opaque {
		return "v-" + strconv.FormatUint(rev*opaqueFactor, 36)
	}
	if v.long {
		return fmt.Sprintf("%s%020d", longVersions, rev)
	}
	return strconv.FormatUint(rev, 10)
}

func (v versioner) parse(s string) (uint64, bool) {
	if s == "0" {
		return 0, true
	}
	if v.long {
		digits, ok := strings.CutPrefix(s, longVersions)
		rev, err := strconv.ParseUint(digits, 10, 64)
		return rev, ok && err == nil
	}
	if !v.opaque {
		rev, err := strconv.ParseUint(s, 10, 64)
		return rev, err == nil
	}
	digits, ok := strings.CutPrefix(s, "v-")
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseUint(digits, 36, 64)
	return x * inverse(opaqueFactor), err == nil
}
