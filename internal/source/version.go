package source

import "github.com/fairlead-io/fairlead/internal/resourceversion"

// noVersion reports whether a version is missing, or is the 0 that means "any" in a request.
func noVersion(v []byte) bool { return len(v) == 0 || string(v) == "0" }

// foreign reports whether a version is not a number although earlier ones were. A watch cannot continue from such a
// version.
func foreign[A, B resourceversion.Text](version A, seen B) bool {
	return resourceversion.WellFormed(seen) && !resourceversion.WellFormed(version)
}
