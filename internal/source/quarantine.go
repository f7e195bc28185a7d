package source

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

// quarantine hands over an object that could not be read or was refused. Its bytes are copied, if they may be shown.
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

// noteUnread makes the condition say that objects are missing from what is otherwise well.
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

// checkKind refuses an object of another kind than those before. The kind is learnt from what comes first, since the
// name of a resource does not tell it, and is sure when a list of it has been applied.
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

// checkList refuses a list, or the end of initial events, of another kind than before. What it says of itself weighs
// more than what its first object was; as the others were held to that, another list is needed then.
func (s *scope) checkList(kind, apiVersion string) error {
	if apiVersion != "" && apiVersion != s.apiVersion {
		return &ProtocolError{What: kind + "List of " + apiVersion + " instead of " + s.apiVersion}
	}
	want := cmp.Or(s.kind, s.guess)
	s.guess = cmp.Or(kind, s.guess)
	if kind != "" && want != "" && kind != want {
		if s.kind != "" && s.sink.Known().Count == 0 {
			s.kind = "" // nothing would be lost if it was wrong
		}
		return &ProtocolError{What: "list of " + kind + " instead of " + want}
	}
	return nil
}
