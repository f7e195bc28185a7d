package guard

// CheckHost is CheckURL for an unknown port.
func (g *Guard) CheckHost(host string) error { return g.checkUnresolved(host, "") }
