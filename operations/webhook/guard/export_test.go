package guard

// CheckHost is CheckURL where the port is not known.
func (g *Guard) CheckHost(host string) error { return g.checkUnresolved(host, "") }
