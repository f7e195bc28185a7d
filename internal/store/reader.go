package store

// reader reads the published state, own writes included. It has no state and takes no lock.
type reader struct {
	pub     *publisher
	intern  *interner
	indexer *indexer // makes facets on demand
}

// Get returns the object of a key, own writes included.
func (r *reader) Get(k Key) (*Record, bool) {
	return r.pub.current().merged.get(r.intern.hashOf(k), k)
}

// Len returns the number of objects, own writes included.
func (r *reader) Len() int { return r.pub.current().merged.objects.Len() }

// Snapshot returns the present version.
func (r *reader) Snapshot() Snapshot { return Snapshot{store: r, state: r.pub.current().merged} }
