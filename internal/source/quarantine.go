package source

import (
	"bytes"
	"log/slog"
	"time"
)

// quarantine passes objects that are unreadable or were rejected to the sink. It has no state of its own.
type quarantine struct {
	cfg    *Config
	log    *slog.Logger
	sink   Sink
	counts *Counters
	added  func(err error) // called before the sink
}

// add quarantines an object. It copies the bytes, unless Config.NoExcerpts is set.
func (q *quarantine) add(o *Object, err error) {
	h := &o.Header
	bad := Quarantined{
		Namespace: string(h.Namespace), Name: string(h.Name), UID: string(h.UID), Version: string(h.ResourceVersion),
		Err: err, Raw: bytes.Clone(o.Raw), Encoding: o.Encoding, At: time.Now(),
	}
	if q.cfg.NoExcerpts {
		bad.Raw = nil
	}
	q.counts.Quarantined++
	q.added(err)
	q.log.Warn("object is quarantined", "key", bad.Key(), "uid", bad.UID, "version", bad.Version, "error", err)
	q.sink.Quarantine(bad)
}
