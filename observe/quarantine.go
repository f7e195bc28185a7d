package observe

import (
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
)

// quarantine reports an object for which the user's function failed.
func (d *derivation) quarantine(from claim, r *cache.Record, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.quarantined[from] = source.Quarantined{
		Namespace: r.Namespace(), Name: r.Name(), UID: string(r.UID()), Version: r.Version(), Err: err, At: time.Now(),
	}
	if d.pending == 0 { // otherwise the commit reports it
		d.sink.Quarantine(d.quarantined[from])
	}
}

// replace starts a replacement of all objects. Quarantined objects stay quarantined.
func (d *derivation) replace() source.Replacement {
	all := d.sink.Replace()
	for _, q := range d.quarantined {
		d.sink.Quarantine(q)
	}
	return all
}

// release ends the quarantine of an object that was made successfully or is gone. If the store has an object under its
// key, that object ends the quarantine.
func (d *derivation) release(from claim) error {
	if _, there := d.quarantined[from]; !there {
		return nil
	}
	delete(d.quarantined, from)
	if _, there := d.store.Get(from.key); there || d.pending > 0 {
		return nil
	}
	d.version++
	o := &source.Object{}
	o.Header.Namespace, o.Header.Name = []byte(from.key.Namespace), []byte(from.key.Name)
	o.Header.ResourceVersion = strconv.AppendUint(nil, d.version, 10)
	return d.sink.Apply(source.Deleted, o)
}
