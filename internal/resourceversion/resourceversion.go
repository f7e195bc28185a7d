// Package resourceversion orders resource versions by KEP-5504: numbers without leading zeros, of any length. It is
// resourceversion.CompareResourceVersion of apimachinery without allocations, and also for byte slices.
//
// Some servers have versions in another format. Such versions have no order, and the caller decides how to treat them.
package resourceversion

// Text is the type of a resource version.
type Text interface{ ~string | ~[]byte }

// Compare returns -1, 0 or 1 if a is before, equal to, or after b. ok is false if a or b is not WellFormed. They then
// have no order, even if they are equal.
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

// WellFormed reports whether v is a number without leading zeros. It rejects 0, which means any version in a request.
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

// Older reports whether a is known to come before b.
func Older[A, B Text](a A, b B) bool {
	order, _ := Compare(a, b)
	return order < 0
}

// AtLeast reports whether a is known to equal b or to come after it.
func AtLeast[A, B Text](a A, b B) bool {
	order, ok := Compare(a, b)
	return ok && order >= 0 || string(a) == string(b)
}
