package watch

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// jsonFormat writes one JSON object per line. It copies the object unchanged, without decoding.
type jsonFormat struct{ line []byte }

func (f *jsonFormat) event(w io.Writer, e store.Event) error {
	b := append(f.line[:0], `{"type":"`...)
	switch e.Type {
	case store.Added, store.Modified, store.Deleted, store.Sync:
		b = append(b, e.Type.String()...)
		b = append(b, '"')
		switch {
		case e.Type == store.Added && e.Initial:
			b = append(b, `,"initial":true`...)
		case e.Type == store.Deleted:
			b = append(b, `,"inferred":`...)
			b = strconv.AppendBool(b, e.Inferred)
		}
		b = appendField(b, "key", e.Key.String())
		b = appendField(b, "uid", string(e.Object.UID()))
		b = appendField(b, "resourceVersion", e.Object.Version())
		if e.Type == store.Modified && e.Prior != nil {
			b = appendField(b, "previousResourceVersion", e.Prior.Version())
		}
		b = append(b, `,"object":`...)
		begin := len(b)
		var err error
		if b, err = e.Object.AppendJSON(b); err != nil {
			return err
		}
		oneLineJSON(b[begin:])
	case store.Left: // another process has the object now
		b = append(b, `LEFT"`...)
		b = appendField(b, "key", e.Key.String())
		b = appendField(b, "uid", string(e.Object.UID()))
		b = appendField(b, "resourceVersion", e.Object.Version())
	case store.Synced:
		b = append(b, `SYNCED"`...)
		b = appendField(b, "resourceVersion", e.Version)
		b = append(b, `,"count":`...)
		b = strconv.AppendInt(b, int64(e.Count), 10)
	case store.Epoch:
		b = append(b, `EPOCH"`...)
		b = appendField(b, "reason", e.Reason)
		b = appendField(b, "resourceVersion", e.Version)
	case store.QuarantinedObject:
		b = append(b, `QUARANTINED"`...)
		b = appendField(b, "key", e.Key.String())
		b = appendField(b, "uid", string(e.UID))
		b = appendField(b, "resourceVersion", e.Version)
		b = appendField(b, "error", e.Err.Error())
	default:
		return nil
	}
	b = append(b, '}', '\n')
	f.line = b
	if cap(f.line) > 1<<20 {
		f.line = nil
	}
	_, err := w.Write(b)
	return err
}

// oneLineJSON replaces line ends in a JSON value. Within strings they are escaped, so this does not change the value.
func oneLineJSON(b []byte) {
	for _, end := range []byte{'\n', '\r'} {
		for rest := b; ; {
			i := bytes.IndexByte(rest, end)
			if i < 0 {
				break
			}
			rest[i], rest = ' ', rest[i+1:]
		}
	}
}

// appendField appends a member with a string value.
func appendField(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	for i := range len(value) {
		if c := value[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := json.Marshal(value) // a string always encodes
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, value...)
	return append(b, '"')
}

func (f *jsonFormat) status(w io.Writer, s source.Status) error {
	return json.NewEncoder(w).Encode(struct {
		Type         string        `json:"type"`
		Namespace    string        `json:"namespace,omitempty"`
		Phase        source.Phase  `json:"phase"`
		Reason       source.Reason `json:"reason"`
		Message      string        `json:"message"`
		StaleSeconds float64       `json:"staleSeconds"`
	}{"STATUS", s.Namespace, s.Phase, s.Reason, s.Message, s.Staleness(time.Now()).Seconds()})
}

func (f *jsonFormat) slots(w io.Writer, member string, held shard.Set) error {
	return json.NewEncoder(w).Encode(struct {
		Type   string `json:"type"`
		Member string `json:"member"`
		Slots  []int  `json:"slots"`
		Of     int    `json:"of"`
	}{"SHARD", member, slices.AppendSeq([]int{}, held.Slots()), held.Layout().Len()})
}

func (f *jsonFormat) stats(w io.Writer, s watchStats) error { return json.NewEncoder(w).Encode(s) }
func (f *jsonFormat) flush(io.Writer) error                 { return nil }
