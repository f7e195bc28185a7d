package admission

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestDeclarations: mistakes are collected until seal, and logged after it. Nothing can be added after seal.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var held []schema.GroupKind
	first := errors.New("first")
	d := &declarations{
		log: slog.New(slog.NewTextHandler(&log, nil)), mistakes: []error{first},
		hold: func(kind schema.GroupKind) { held = append(held, kind) },
	}
	hub := schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Page"}
	conversion := func(version, hubVersion string, err error) (mistake error) {
		to := hub.GroupKind().WithVersion(hubVersion)
		d.addConversion("page.go:1", version, to, &spoke{}, err, func(err error) error {
			mistake = err
			return err
		})
		return mistake
	}
	d.addHook(&hook{Rule: Rule{Name: "a"}, place: "a.go:1"})
	d.addHook(&hook{Rule: Rule{Name: "b"}, place: "b.go:1"})
	for _, tc := range []struct {
		reason       string
		version, hub string
		mistake      error
		want         error
	}{
		{"a mistake in the conversion", "v1", "v2", first, first},
		{"one version", "v1", "v2", nil, nil},
		{"another version", "v1beta1", "v2", nil, nil},
		{"the same version", "v1", "v2", nil, errName},
		{"another hub", "v1", "v3", nil, errInvalid},
	} {
		if err := conversion(tc.version, tc.hub, tc.mistake); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.reason, err, tc.want)
		}
	}
	if len(held) != 1 || held[0] != hub.GroupKind() {
		t.Errorf("the sources of %v wait", held)
	}
	if log.Len() > 0 {
		t.Errorf("before seal, the log says %s", &log)
	}
	d.addHook(&hook{Rule: Rule{Name: "b"}, place: "c.go:1"})
	if err := d.seal(); !errors.Is(err, first) || !errors.Is(err, errName) || !strings.Contains(err.Error(), "b.go:1") {
		t.Errorf("the mistakes are %v", err)
	}
	if err := conversion("v3", "v2", nil); !errors.Is(err, errSealed) {
		t.Errorf("after seal: %v", err)
	}
	d.addHook(&hook{Rule: Rule{Name: "late"}})
	if !strings.Contains(log.String(), errSealed.Error()) {
		t.Errorf("after seal, the log says %q", &log)
	}
	hooks, converters := d.all()
	if len(hooks) != 3 || len(converters) != 1 || len(converters[0].spokes) != 2 {
		t.Errorf("%d hooks and %d converters", len(hooks), len(converters))
	}
	empty := &declarations{}
	if err := empty.seal(); !errors.Is(err, errInvalid) {
		t.Errorf("without hooks: %v", err)
	}
}
