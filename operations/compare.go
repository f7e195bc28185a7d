package operations

import (
	"bytes"
	"encoding/json"
)

// canonical returns a JSON value with sorted members and without white space, so that equal values have equal bytes.
// Input that is not JSON is returned unchanged.
func canonical(raw []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // keep the spelling of numbers
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
