package engine_test

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
)

// Content without the fields that vary has the same hash in each run, and other content has another one.
func TestVarying(t *testing.T) {
	content := func(password, key, phase string) map[string]any {
		return map[string]any{
			"data": map[string]any{"password": password, "keys": []any{"fixed", key}}, "status": map[string]any{"phase": phase},
		}
	}
	v := engine.NewVarying([]string{"secrets/default/a .data.password", "secrets/default/a .data.keys[]"})
	base := v.Hash("secrets/default/a", content("x", "y", "Ready"))
	for _, tt := range []struct {
		reason  string
		object  string
		content map[string]any
		same    bool
	}{
		{"other texts of the fields", "secrets/default/a", content("xx", "yy", "Ready"), true},
		{"another field", "secrets/default/a", content("x", "y", "Failed"), false},
		{"another object", "secrets/default/b", content("x", "y", "Ready"), false},
		{"no content", "secrets/default/a", nil, false},
	} {
		if got := v.Hash(tt.object, tt.content); (got == base) != tt.same {
			t.Errorf("%s: hash %s, and that of the first content is %s", tt.reason, got, base)
		}
	}
}
