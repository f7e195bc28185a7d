package content_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/internal/tree"
)

func TestAtVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason     string
		typ        types.PatchType
		data, want string
		err        bool
	}{
		{"a merge patch", types.MergePatchType, `{"a":1}`, `{"a":1,"metadata":{"resourceVersion":"7"}}`, false},
		{"a null", types.MergePatchType, `null`, `{"metadata":{"resourceVersion":"7"}}`, false},
		{
			"a version of its own", types.MergePatchType,
			`{"metadata":{"resourceVersion":"3"}}`, `{"metadata":{"resourceVersion":"3"}}`, false,
		},
		{
			"a JSON patch", types.JSONPatchType, `[{"op":"remove","path":"/a"}]`,
			`[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/a"}]`, false,
		},
		{"a malformed JSON patch", types.JSONPatchType, `{}`, ``, true},
		{"a malformed merge patch", types.MergePatchType, `[]`, ``, true},
	} {
		got, err := content.AtVersion(tc.typ, []byte(tc.data), "7")
		if string(got) != tc.want || (err != nil) != tc.err {
			t.Errorf("%s: got %s, %v", tc.reason, got, err)
		}
	}
}

func TestChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason     string
		typ        types.PatchType
		data       string
		object     string // "" if the object is unknown
		unaffected bool
	}{
		{"an empty merge patch of an unknown object", types.MergePatchType, ` {} `, ``, true},
		{"an empty JSON patch of an unknown object", types.JSONPatchType, `[]`, ``, true},
		{"an unknown object", types.MergePatchType, `{"a":1}`, ``, false},
		{"an equal value", types.MergePatchType, `{"a":1}`, `{"a":1,"b":2}`, true},
		{"another value", types.MergePatchType, `{"a":2}`, `{"a":1,"b":2}`, false},
		{"the removal of an absent field", types.MergePatchType, `{"c":null}`, `{"a":1}`, true},
		{
			"a JSON patch with an equal value", types.JSONPatchType, `[{"op":"replace","path":"/a","value":1}]`, `{"a":1}`,
			true,
		},
		{"a JSON patch that the server refuses", types.JSONPatchType, `[{"op":"remove","path":"/b"}]`, `{"a":1}`, false},
		{"a strategic merge patch", types.StrategicMergePatchType, `{"a":1}`, `{"a":1}`, false},
	} {
		var object []byte
		if tc.object != "" {
			object = []byte(tc.object)
		}
		if got := content.ChangesNothing(tc.typ, []byte(tc.data), object); got != tc.unaffected {
			t.Errorf("%s: got %v", tc.reason, got)
		}
	}
}

// Complete adds the zero fields that the server's object lacks to a difference of two Go values.
func TestComplete(t *testing.T) {
	t.Parallel()
	before, after := `{"status":{"phase":"","count":0}}`, `{"status":{"phase":"Ready","count":0,"sub":{"n":0}}}`
	for _, tc := range []struct {
		reason string
		server string // "" if only the Go values are known
		drop   []string
		all    bool
		want   string // "" if only the server can tell
	}{
		{"the server lacks the status", `{}`, nil, false, `{"status":{"phase":"Ready","count":0,"sub":{"n":0}}}`},
		{"the server has a status", `{"status":{"phase":"Old"}}`, nil, false, `{"status":{"phase":"Ready","sub":{"n":0}}}`},
		{
			"all missing fields", `{"status":{"phase":"Old"}}`, nil, true,
			`{"status":{"phase":"Ready","count":0,"sub":{"n":0}}}`,
		},
		{"only Go values are known", ``, nil, false, ``},
		{"the cache drops a part of it", `{"status":{"phase":"Old"}}`, []string{"status.log"}, false, ``},
		{
			"the cache drops another field", `{"status":{"phase":"Old"}}`,
			[]string{"spec.log"},
			false,
			`{"status":{"phase":"Ready","sub":{"n":0}}}`,
		},
	} {
		original := content.Original{Drop: tc.drop}
		if tc.server != "" {
			original.JSON = func() (map[string]any, error) { return content.Decode([]byte(tc.server)) }
		}
		from, to := decoded(t, before), decoded(t, after)
		patch := tree.Difference(from, to)
		known, err := original.Complete(patch, from, to, tc.all)
		if err != nil || known != (tc.want != "") {
			t.Errorf("%s: known is %v, %v", tc.reason, known, err)
			continue
		}
		if !known {
			continue
		}
		if diff := cmp.Diff(decoded(t, tc.want), patch); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestDropServerFields(t *testing.T) {
	t.Parallel()
	patch := decoded(t, `{"kind":"A","apiVersion":"v1","metadata":{"uid":"u","generation":2},"spec":{"kind":"B"}}`)
	content.DropServerFields(patch)
	raw, err := json.Marshal(patch)
	if err != nil || string(raw) != `{"spec":{"kind":"B"}}` {
		t.Errorf("got %s, %v", raw, err)
	}
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	m, err := content.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
