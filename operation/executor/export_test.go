package executor

// Blames is blames, and FirstAttempt firstAttempt.
var (
	Blames       = blames
	FirstAttempt = firstAttempt
)

// Spend has a namespace use up writes to the API server.
func (e *Executor) Spend(namespace string, writes float64) {
	e.writes.charge(namespace, price{count: writes})
}
