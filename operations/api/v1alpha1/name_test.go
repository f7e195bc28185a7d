package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func TestOperationName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 260)
	for _, tt := range []struct {
		reason string
		typ    string
		id     string
		want   string // a name that ends in a dot is the readable prefix before the hash
	}{
		{"lower case is kept", "application", "f92f1fce-1234", "application-f92f1fce-1234"},
		{"dots are kept", "app.v1", "a.b", "app.v1-a.b"},
		{"upper case in the type is hashed", "Application", "f92f1fce-1234", "application.f92f1fce.1234."},
		{"upper case in the id is hashed", "application", "F92F", "application.f92f."},
		{"a dash in the type is hashed", "my-app", "1", "my.app.1."},
		{"an invalid name is hashed", "app", "a/b c", "app.a.b.c."},
		{"an id that ends in a dash is hashed", "app", "a-", "app.a."},
		{
			"a name that is too long is hashed, and truncated",
			"app", long, "app." + strings.Repeat("x", maxNamePrefix-len("app.")) + ".",
		},
		{"a name without letters is only a hash", "Ä", "/", ""},
		{"an empty name is hashed, too", "", "", ""},
		{"a missing type is hashed", "", "a", "a."},
		{"a missing id is hashed", "a", "", "a."},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			got, want := OperationName(tt.typ, tt.id), tt.want
			if want == "" || strings.HasSuffix(want, ".") {
				want += hashResource(tt.typ, tt.id)
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Clusters store these names. A release with another hash would permit a second Operation of a resource.
func TestOperationNameNeverChanges(t *testing.T) {
	t.Parallel()
	if got, want := OperationName("Application", "7D44"),
		"application.7d44.7gmbz5kxz66hnnyrjfl4a7d5n3yurgod"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// part draws texts that are close to each other: few letters, dashes, dots, case, and complete names and hashes.
func part() *rapid.Generator[string] {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "A", "B", "-", ".", "0", "/", "ä", "", "a-b", "a.b"}),
		rapid.Custom(func(t *rapid.T) string {
			return OperationName(rapid.StringOfN(rapid.RuneFrom([]rune("aAb-.")), 0, 3, -1).Draw(t, "type"),
				rapid.StringOfN(rapid.RuneFrom([]rune("aAb-.")), 0, 3, -1).Draw(t, "id"))
		}),
		rapid.String(),
	)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces"), "")
	})
}

// No two resources share a name, and every name is valid. The test compares all pairs of many resources, so that plain
// names meet hashed ones.
func TestOperationNameIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		byName := map[string][2]string{}
		for range 20 {
			resource := [2]string{part().Draw(t, "type"), part().Draw(t, "id")}
			name := OperationName(resource[0], resource[1])
			if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
				t.Fatalf("name %q of %q is not valid: %v", name, resource, errs)
			}
			if other, ok := byName[name]; ok && other != resource {
				t.Fatalf("%q and %q share the name %q", other, resource, name)
			}
			byName[name] = resource
			if plain := resource[0] + "-" + resource[1]; name != plain && strings.Contains(name, "-") {
				t.Fatalf("hashed name %q of %q has a dash", name, resource)
			}
		}
	})
}

func FuzzOperationName(f *testing.F) {
	f.Add("application", "f92f", "Application", "f92f")
	f.Add("a", "b-c", "a-b", "c")
	f.Add("a.b", "c", "a", "b.c")
	f.Fuzz(func(t *testing.T, type1, id1, type2, id2 string) {
		name1, name2 := OperationName(type1, id1), OperationName(type2, id2)
		if same := type1 == type2 && id1 == id2; same != (name1 == name2) {
			t.Errorf("(%q, %q) is %q and (%q, %q) is %q", type1, id1, name1, type2, id2, name2)
		}
		if errs := validation.IsDNS1123Subdomain(name1); len(errs) > 0 {
			t.Errorf("name %q of (%q, %q): %v", name1, type1, id1, errs)
		}
	})
}
