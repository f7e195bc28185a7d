// Package resourceversion orders resource versions as KEP-5504 says: numbers without leading zeros, of any length. It
// is resourceversion.CompareResourceVersion of apimachinery, without an allocation and for bytes too.
//
// Versions of other servers are no such numbers. Of two that differ, nothing tells which one came before: whoever asks
// decides what that means.
package resourceversion

// Text is a resource version as it is read.
type Text interface{ ~string | ~[]byte }

// Compare returns -1, 0 or 1 for a version before, the same as, or after another one. ok is false when one of them is
// not WellFormed; they then have no order, also when they are the same.
func Compare[A, B Text](a A, b B) (order int, ok bool) {
	switch {
	case !WellFormed(a) || !WellFormed(b):
		return 0, false
	case len(a) < len(b):
		return -1, true
	case len(a) > len(b), string(a) > string(b):
		return 1, true
	case string(a) < string(b):
		return -1, true
	}
	return 0, true
}

// WellFormed says that a version is a number without leading zeros. 0 is none: it stands for any version, in a request.
func WellFormed[T Text](v T) bool {
	if len(v) == 0 || v[0] == '0' {
		return false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}

// Older says that a is known to come before b.
func Older[A, B Text](a A, b B) bool {
	order, _ := Compare(a, b)
	return order < 0
}

// AtLeast says that a is known to be b or to come after it.
func AtLeast[A, B Text](a A, b B) bool {
	order, ok := Compare(a, b)
	return ok && order >= 0 || string(a) == string(b)
}
