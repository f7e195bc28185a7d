package operations

import (
	"bytes"
	"encoding/json"
)

// canonical returns a JSON value with sorted members and no white space, so that equal values have equal bytes. What
// is not JSON stays as it is.
func canonical(raw []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // numbers keep their spelling
	var v any
	if d.Decode(&v) != nil {
		return raw
	}
	out, err := json.Marshal(v)
	if err != nil {
		return raw
	}
	return out
}
