package source

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

// quarantine passes an object that is unreadable or was rejected to the sink. It copies the bytes, unless
// Config.NoExcerpts is set.
func (s *scope) quarantine(o *Object, err error) {
	h := &o.Header
	q := Quarantined{
		Namespace: string(h.Namespace), Name: string(h.Name), UID: string(h.UID), Version: string(h.ResourceVersion),
		Err: err, Raw: bytes.Clone(o.Raw), Encoding: o.Encoding, At: time.Now(),
	}
	if s.src.cfg.NoExcerpts {
		q.Raw = nil
	}
	s.count.Quarantined++
	s.noteUnread(err)
	s.log.Warn("object is quarantined", "key", q.Key(), "uid", q.UID, "version", q.Version, "error", err)
	s.sink.Quarantine(q)
}

// noteUnread adds the number of unreadable objects to the message of the status.
func (s *scope) noteUnread(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread++; s.unread == 1 {
		s.unreadErr = err
	}
	if s.status.Phase == Watching {
		s.status.Message = s.unreadMessage()
	}
}

func (s *scope) unreadMessage() string {
	switch s.unread {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 object could not be read: %v", s.unreadErr)
	}
	return fmt.Sprintf("%d objects could not be read, the first: %v", s.unread, s.unreadErr)
}

// checkKind rejects an object of another kind than earlier objects. A resource name does not determine the kind. The
// first object sets it provisionally, and a committed list confirms it.
func (s *scope) checkKind(o *Object) error {
	kind, apiVersion := o.Header.Kind, o.Header.APIVersion
	if len(apiVersion) > 0 && string(apiVersion) != s.apiVersion {
		return &ProtocolError{
			What:    "object of " + string(apiVersion) + " among those of " + s.apiVersion,
			Excerpt: s.excerpt(o.Raw),
		}
	}
	if s.kind == "" && s.guess == "" {
		s.guess = string(kind)
	}
	if want := cmp.Or(s.kind, s.guess); len(kind) > 0 && string(kind) != want {
		return &ProtocolError{What: "object of kind " + string(kind) + " among " + want, Excerpt: s.excerpt(o.Raw)}
	}
	return nil
}

// checkList rejects a list, or the end of initial events, of another kind than before. The kind of the list overrides
// the kind of its first object. The list is still rejected then, because its other objects were checked against the
// wrong kind.
func (s *scope) checkList(kind, apiVersion string) error {
	if apiVersion != "" && apiVersion != s.apiVersion {
		return &ProtocolError{What: kind + "List of " + apiVersion + " instead of " + s.apiVersion}
	}
	want := cmp.Or(s.kind, s.guess)
	s.guess = cmp.Or(kind, s.guess)
	if kind != "" && want != "" && kind != want {
		if s.kind != "" && s.sink.Known().Count == 0 {
			s.kind = "" // the sink is empty, so a wrong kind loses no objects
		}
		return &ProtocolError{What: "list of " + kind + " instead of " + want}
	}
	return nil
}
