package store

// holding is what a cursor that does not want its own echoes keeps.
type holding struct {
	keys map[Key]*delta
}

type ledger struct{}

func (l *ledger) init()               {}
func (l *ledger) dropScope(ns string) {}

func (h *holding) released(c *Cursor) bool { return false }
func (c *Cursor) fillReleased(max int)     {}
func (c *Cursor) holds(ch *change) bool    { return false }
