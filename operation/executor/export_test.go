package executor

// Blames is blames.
var Blames = blames

// Spend has a namespace use up writes to the API server.
func (e *Executor) Spend(namespace string, writes float64) {
	e.writes.charge(namespace, price{count: writes})
}
