package executor

// Blames is blames, and FirstAttempt firstAttempt.
var (
	Blames       = blames
	FirstAttempt = firstAttempt
)
