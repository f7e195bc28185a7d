package source

import "github.com/fairlead-io/fairlead/internal/resourceversion"

// noVersion says that a version names no point of the history: it is missing, or the 0 that means "any" in a request.
func noVersion(v []byte) bool { return len(v) == 0 || string(v) == "0" }

// foreign says that a version is no number although those before were: no watch goes on from there.
func foreign[A, B resourceversion.Text](version A, seen B) bool {
	return resourceversion.WellFormed(seen) && !resourceversion.WellFormed(version)
}
