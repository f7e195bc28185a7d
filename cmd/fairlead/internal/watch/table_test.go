package watch

import (
	"encoding/json"
	"testing"
)

func TestStateOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, status, want string }{
		{"no status", `{}`, "-"},
		{"a phase", `{"phase":"Bound","conditions":[{"type":"Ready","status":"True"}]}`, "Bound"},
		{"a summary", `{"conditions":[{"type":"Ready","status":"True"},{"type":"Synced","status":"True"}]}`, "Ready"},
		{"a summary that is not True", `{"conditions":[{"type":"Available","status":"Unknown"}]}`, "NotAvailable"},
		{
			"no summary", `{"conditions":[{"type":"Suspended","status":"False"},{"type":"Complete","status":"True"}]}`,
			"Complete",
		},
		{"no condition is True", `{"conditions":[{"type":"DiskPressure","status":"False"}]}`, "-"},
		{"broken conditions", `{"conditions":["Ready",{"type":7}]}`, "-"},
		{
			"a flow that waits",
			`{"url":"","at":{"flow":"routes","step":"publish/wait-active","reason":"await","begun":"2026-01-02T03:04:05Z",
				"started":"2026-01-02T03:04:05Z","token":"t"}}`,
			"wait-active",
		},
		{
			"a flow that has ended",
			`{"at":{"flow":"routes","step":"a","reason":"completed","ended":true,"begun":null,"started":null,"token":"t"}}`,
			"completed",
		},
		{"a field that is no position", `{"at":{"flow":"routes","step":7},"more":{"step":"a"}}`, "-"},
	} {
		var status any
		if err := json.Unmarshal([]byte(tc.status), &status); err != nil {
			t.Fatal(err)
		}
		if got := stateOf(map[string]any{"status": status}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
