package source

import (
	"bytes"
	"time"
)

// quarantine hands over an object that could not be read or was refused. Its bytes are copied.
func (s *scope) quarantine(o *Object, err error) {
	h := &o.Header
	q := Quarantined{
		Namespace: string(h.Namespace), Name: string(h.Name), UID: string(h.UID), Version: string(h.ResourceVersion),
		Err: err, Raw: bytes.Clone(o.Raw), Encoding: o.Encoding, At: time.Now(),
	}
	s.count.Quarantined++
	s.log.Warn("object is quarantined", "key", q.Key(), "uid", q.UID, "version", q.Version, "error", err)
	s.sink.Quarantine(q)
}

// checkKind refuses an object of another kind than those before. The kind is learnt from what comes first, since the name
// of a resource does not tell it.
func (s *scope) checkKind(o *Object) error {
	kind := o.Header.Kind
	if len(kind) == 0 || string(kind) == s.kind {
		return nil
	}
	if s.kind == "" {
		s.kind = string(kind)
		return nil
	}
	return &ProtocolError{What: "object of kind " + string(kind) + " among " + s.kind, Excerpt: excerpt(o.Raw)}
}
