package source

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// jsonList decodes a list item by item. The members around the items may come in any order. finish checks them at the
// end of the list.
type jsonList struct {
	at      listState
	members map[string]json.RawMessage
	retry   int
}

type listState uint8

const (
	listBegin  listState = iota
	listMember           // a member or }
	listComma            // a comma or }
	listItem             // an item or ]
	listNext             // a comma or ]
	listDone
)

func (d *jsonList) next(b []byte, eof bool, e *event) (n int, got bool, err error) {
	if len(b) < d.retry && !eof {
		return 0, false, frame.ErrShort
	}
	d.retry = 0
	for {
		if n = frame.SkipSpace(b, n); n >= len(b) {
			return n, false, frame.ErrShort
		}
		i := n
		switch d.at {
		case listBegin:
			if b[i] != '{' {
				return n, false, &ProtocolError{What: "no list", Excerpt: excerpt(b)}
			}
			d.members = map[string]json.RawMessage{}
			d.at = listMember
			n++
			continue
		case listComma, listMember:
			if b[i] == '}' {
				n, d.at = n+1, listDone
				e.reset(JSON)
				if e.list, err = d.finish(); err != nil {
					return n, false, err
				}
				e.kind = evListEnd
				return n, true, nil
			}
			if d.at == listComma {
				if b[i] != ',' {
					return n, false, d.malformed(b, frame.Syntax(i, "comma or }"))
				}
				i = frame.SkipSpace(b, i+1)
			}
			if i, err = d.member(b, i); err != nil {
				return d.short(b, n, err)
			}
			n = i
			continue
		case listNext, listItem:
			if b[i] == ']' {
				n, d.at = n+1, listComma
				continue
			}
			if d.at == listNext {
				if b[i] != ',' {
					return n, false, d.malformed(b, frame.Syntax(i, "comma or ]"))
				}
				i = frame.SkipSpace(b, i+1)
			}
			if i, err = d.item(b, i, e); err != nil {
				return d.short(b, n, err)
			}
			d.at = listNext
			return i, true, nil
		default:
			return n, false, &ProtocolError{What: "data after the end of the list", Excerpt: excerpt(b[n:])}
		}
	}
}

// short handles an incomplete value. A large one is scanned again only after the buffer has doubled.
func (d *jsonList) short(b []byte, n int, err error) (int, bool, error) {
	if !isShort(err) {
		return n, false, d.malformed(b, err)
	}
	if size := len(b) - n; size > eagerBelow {
		d.retry = 2 * size
	}
	return n, false, err
}

func (d *jsonList) malformed(b []byte, err error) error {
	if _, is := err.(*ProtocolError); is {
		return err
	}
	return &ProtocolError{What: "malformed list", Err: err}
}

func (d *jsonList) item(b []byte, i int, e *event) (int, error) {
	if i >= len(b) {
		return i, frame.ErrShort
	}
	e.reset(JSON)
	var end int
	var err error
	if b[i] == '{' {
		end, err = scanJSON(b, i, &e.obj.Header)
	} else if end, err = frame.SkipValueAt(b, i, 2); err == nil {
		e.err = errNoObject
	}
	if err != nil {
		return end, err
	}
	e.obj.Raw = b[i:end:end]
	e.finishItem()
	return end, nil
}

// member reads one member of the list. Of items it reads only the opening bracket.
func (d *jsonList) member(b []byte, i int) (int, error) {
	if i >= len(b) {
		return i, frame.ErrShort
	}
	if b[i] != '"' {
		return i, frame.Syntax(i, "name of a member")
	}
	end, plain, err := frame.SkipString(b, i)
	if err != nil {
		return end, err
	}
	name := b[i+1 : end-1]
	if !plain {
		name = frame.AppendUnquoted(nil, name)
	}
	if i = frame.SkipSpace(b, end); i >= len(b) {
		return i, frame.ErrShort
	}
	if b[i] != ':' {
		return i, frame.Syntax(i, "colon")
	}
	if i = frame.SkipSpace(b, i+1); i >= len(b) {
		return i, frame.ErrShort
	}
	if string(name) == "items" && b[i] == '[' {
		d.at = listItem
		return i + 1, nil
	}
	if end, err = frame.SkipValueAt(b, i, 1); err != nil {
		return end, err
	}
	d.at = listComma
	switch string(name) {
	case "kind", "apiVersion", "metadata", "items", "status", "message", "reason", "details", "code":
		d.members[string(name)] = append(json.RawMessage(nil), b[i:end]...)
	}
	if string(name) == "kind" {
		return end, d.checkKind()
	}
	return end, nil
}

// checkKind rejects a response of another kind, such as a Table, before its items are read.
func (d *jsonList) checkKind() error {
	var kind string
	if json.Unmarshal(d.members["kind"], &kind) == nil && kind != "Status" && !strings.HasSuffix(kind, "List") {
		return &ProtocolError{What: kind + " instead of a list"}
	}
	return nil
}

func (d *jsonList) finish() (*listMeta, error) {
	var kind, apiVersion string
	_ = json.Unmarshal(d.members["kind"], &kind) // a kind of another type fails in checkList
	_ = json.Unmarshal(d.members["apiVersion"], &apiVersion)
	if kind == "Status" {
		var s metav1.Status
		all, err := json.Marshal(d.members)
		if err == nil {
			err = json.Unmarshal(all, &s)
		}
		if err != nil {
			return nil, &ProtocolError{What: "malformed status", Err: err}
		}
		return nil, refusalOf(s)
	}
	var meta struct {
		ResourceVersion    string
		Continue           string
		RemainingItemCount int64
	}
	if raw, is := d.members["metadata"]; is {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, &ProtocolError{What: "malformed metadata of a list", Err: err}
		}
	}
	if items, is := d.members["items"]; is && string(items) != "null" {
		return nil, &ProtocolError{What: "items that are no array"}
	}
	return checkList(kind, apiVersion, listMeta{
		version: meta.ResourceVersion, next: meta.Continue, remaining: meta.RemainingItemCount,
	})
}

// checkList rejects a response with status 200 that is not a usable list of objects.
func checkList(kind, apiVersion string, m listMeta) (*listMeta, error) {
	switch {
	case kind == "Table", !strings.HasSuffix(kind, "List"):
		if kind == "" {
			kind = "an object without a kind"
		}
		return nil, &ProtocolError{What: kind + " (" + apiVersion + ") instead of a list"}
	case m.version == "" || m.version == "0":
		return nil, &ProtocolError{What: "list without resource version"}
	case m.next == "" && m.remaining > 0:
		return nil, &ProtocolError{What: "list with remaining items and no continue token"}
	}
	m.kind = strings.TrimSuffix(kind, "List")
	if m.kind != "" { // a v1 List may hold any kind
		m.apiVersion = apiVersion
	}
	return &m, nil
}
