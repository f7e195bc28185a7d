package source

// compareVersions orders two resource versions as KEP-5504 says: numbers without leading zeros, of any length. ok is
// false when one of them is no such number; then the source is in equality-only mode for them: versions that differ say
// nothing about before and after. It is resourceversion.CompareResourceVersion without an allocation.
func compareVersions[A, B string | []byte](a A, b B) (order int, ok bool) {
	if !isNumber(a) || !isNumber(b) {
		return 0, false
	}
	if len(a) != len(b) {
		if len(a) < len(b) {
			return -1, true
		}
		return 1, true
	}
	for i := range len(a) {
		if a[i] != b[i] {
			if a[i] < b[i] {
				return -1, true
			}
			return 1, true
		}
	}
	return 0, true
}

func isNumber[T string | []byte](v T) bool {
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

// noVersion says that a version names no point of the history: it is missing, or the 0 that means "any" in a request.
func noVersion(v []byte) bool { return len(v) == 0 || string(v) == "0" }

// older says that a is certainly older than b.
func older[A, B string | []byte](a A, b B) bool {
	order, ok := compareVersions(a, b)
	return ok && order < 0
}

// foreign says that a version is no number although those before were: no watch goes on from there.
func foreign[A, B string | []byte](version A, seen B) bool {
	return isNumber(seen) && !isNumber(version)
}

// reached says that a is at or after b, as far as one can tell.
func reached[A, B string | []byte](a A, b B) bool {
	order, ok := compareVersions(a, b)
	if !ok {
		return string(a) == string(b)
	}
	return order >= 0
}
