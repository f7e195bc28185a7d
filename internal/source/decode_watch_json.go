package source

import (
	"bytes"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// jsonWatch decodes watch events {"type":…,"object":{…}}, usually one per line.
//
// A line end or a closing brace at the end of the buffer triggers a scan, so a frame that arrives in pieces is usually
// scanned once. The JSON syntax alone delimits the frames.
type jsonWatch struct {
	searched int // bytes of the buffer without a line end
	retry    int // minimum buffer length for the next scan
}

// eagerBelow is the size up to which an incomplete frame is scanned again whenever it may be complete. A larger frame
// is scanned again only when it has doubled, so the total work stays linear.
const eagerBelow = 1 << 20

func (d *jsonWatch) next(b []byte, eof bool, e *event) (n int, got bool, err error) {
	n = frame.SkipSpace(b, 0)
	if n > 0 {
		d.searched, d.retry = max(0, d.searched-n), max(0, d.retry-n)
	}
	if b = b[n:]; len(b) == 0 {
		return n, false, frame.ErrShort
	}
	if b[0] != '{' {
		return n, false, &ProtocolError{What: "no watch event", Excerpt: excerpt(b)}
	}
	if !d.worthwhile(b, eof) {
		return n, false, frame.ErrShort
	}
	e.reset(JSON)
	end, err := d.scan(b, e)
	if isShort(err) {
		d.retry = len(b) + 1
		if len(b) >= eagerBelow {
			d.retry = 2 * len(b)
		}
		return n, false, err
	}
	d.searched, d.retry = 0, 0
	if _, malformed := err.(*frame.SyntaxError); malformed {
		// The part of the header that was read stays: it may name the object.
		e.kind, e.err = evGarbage, err
		end = len(b)
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			end = i + 1
		} else if !eof {
			return n, false, &ProtocolError{What: "malformed watch event", Excerpt: excerpt(b), Err: err}
		}
		e.obj.Raw = b[:end]
		return n + end, true, nil
	}
	return n + end, err == nil, err
}

// worthwhile reports whether b may hold a complete frame.
func (d *jsonWatch) worthwhile(b []byte, eof bool) bool {
	if eof {
		return true
	}
	if len(b) < d.retry {
		return false
	}
	if bytes.IndexByte(b[min(d.searched, len(b)):], '\n') >= 0 {
		return true
	}
	d.searched = len(b)
	return b[len(b)-1] == '}'
}

func (d *jsonWatch) scan(b []byte, e *event) (end int, err error) {
	var eventType, kind string
	h := &e.obj.Header
	c := cursor{b: b}
	for c.next(h) {
		switch string(c.name) {
		case "type":
			var s []byte
			s, c.i, c.err = h.text(b, c.i, nil, "type")
			eventType = typeName(s)
		case "object":
			if b[c.i] != '{' {
				c.err = frame.Syntax(c.i, "object")
				break
			}
			h.reset()
			start := c.i
			c.i, c.err = scanJSON(b, c.i, h)
			if c.err == nil {
				e.obj.Raw = b[start:c.i:c.i]
			}
		case "kind":
			var s []byte
			s, c.i, c.err = h.text(b, c.i, nil, "kind")
			kind = string(s)
		default:
			c.i, c.err = frame.SkipValueAt(b, c.i, 1)
		}
	}
	if c.err != nil {
		e.change = changeOf(eventType)
		return c.i, c.err
	}
	if e.obj.Raw == nil {
		e.obj.Raw = b[:c.i:c.i]
		if kind == "Status" {
			e.kind, e.err = evError, inStreamError(&e.obj, kind)
			return c.i, nil
		}
		if kind != "" {
			return c.i, &ProtocolError{What: kind + " instead of a watch event", Excerpt: excerpt(b)}
		}
		return c.i, frame.Syntax(0, "watch event with an object")
	}
	return c.i, e.finishEvent(eventType)
}

// typeName avoids an allocation for the known types.
func typeName(s []byte) string {
	switch string(s) {
	case "ADDED":
		return "ADDED"
	case "MODIFIED":
		return "MODIFIED"
	case "DELETED":
		return "DELETED"
	case "BOOKMARK":
		return "BOOKMARK"
	case "ERROR":
		return "ERROR"
	}
	return string(s)
}
