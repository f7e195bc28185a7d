package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// operation is one operation of a JSON patch (RFC 6902).
type operation map[string]any

// patchOf returns a JSON patch for raw with the changes from before to after, which are views of raw in the Go type.
// Fields of raw that the type does not know stay unchanged. The patch is nil if there are no changes.
func patchOf(raw, before, after any) ([]byte, error) {
	var d differ
	d.value("", raw, true, before, after)
	if len(d.ops) == 0 {
		return nil, nil
	}
	return json.Marshal(d.ops)
}

type differ struct{ ops []operation }

func (d *differ) set(op, path string, value any) {
	d.ops = append(d.ops, operation{"op": op, "path": path, "value": value})
}

func (d *differ) remove(path string) { d.ops = append(d.ops, operation{"op": "remove", "path": path}) }

// value compares the values at a path. raw may lack the value, since encoders of Go types also write unset fields.
func (d *differ) value(path string, raw any, there bool, before, after any) {
	if tree.Same(before, after) {
		return
	}
	if rm, ok := raw.(map[string]any); ok {
		bm, bok := before.(map[string]any)
		am, aok := after.(map[string]any)
		if bok && aok {
			d.object(path, rm, bm, am)
			return
		}
	}
	if rl, ok := raw.([]any); ok {
		bl, bok := before.([]any)
		al, aok := after.([]any)
		if bok && aok && len(rl) == len(bl) {
			d.list(path, rl, bl, al)
			return
		}
	}
	if there {
		d.set("replace", path, after)
	} else {
		d.set("add", path, after)
	}
}

func (d *differ) object(path string, raw, before, after map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[k]; stays {
			continue
		}
		if _, there := raw[k]; there {
			d.remove(path + "/" + escape(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(after)) {
		r, there := raw[k]
		b, was := before[k]
		if !was {
			d.set("add", path+"/"+escape(k), after[k])
			continue
		}
		d.value(path+"/"+escape(k), r, there, b, after[k])
	}
}

// list compares lists. Common elements at both ends stay; the elements between are compared by position.
func (d *differ) list(path string, raw, before, after []any) {
	start, end := 0, 0
	for start < min(len(before), len(after)) && tree.Same(before[start], after[start]) {
		start++
	}
	for end < min(len(before), len(after))-start && tree.Same(before[len(before)-1-end], after[len(after)-1-end]) {
		end++
	}
	was, is := len(before)-end, len(after)-end
	both := min(was, is)
	for i := start; i < both; i++ {
		if at := path + "/" + strconv.Itoa(i); sameElement(before[i], after[i]) {
			d.value(at, raw[i], true, before[i], after[i])
		} else {
			d.set("replace", at, after[i])
		}
	}
	for i := was - 1; i >= both; i-- { // from the end, so that earlier indexes stay valid
		d.remove(path + "/" + strconv.Itoa(i))
	}
	for i := both; i < is; i++ {
		at := strconv.Itoa(i)
		if i == len(after)-1 {
			at = "-"
		}
		d.set("add", path+"/"+at, after[i])
	}
}

// sameElement reports whether two elements can be versions of the same one. Elements with different names are not.
func sameElement(a, b any) bool {
	before, _ := a.(map[string]any)
	after, _ := b.(map[string]any)
	for _, key := range []string{"name", "key", "uid"} {
		x, was := before[key].(string)
		y, is := after[key].(string)
		if was && is && x != y {
			return false
		}
	}
	return true
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

func escape(key string) string { return pointer.Replace(key) }
