package project

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if code, ok := os.LookupEnv(fakeCode); ok {
		os.Exit(fakeFairlead(code))
	}
	goleak.VerifyTestMain(m)
}

func TestCheckModule(t *testing.T) {
	t.Parallel()
	for module, ok := range map[string]bool{
		"example.com/web": true, "web": true, "github.com/a/b-c/v2": true, "example.com/_x/~y": true,
		"": false, "/web": false, "web/": false, "a//b": false, "my web": false, "a/../b": false, "-x": false,
		"a.":                   false,
		"example.com/internal": false, "a@v1": false, "a/.b": false, "ünïcode.com": false, strings.Repeat("a",
			201): false,
	} {
		if err := checkModule(module); (err == nil) != ok || err != nil && !errors.Is(err, ErrModule) {
			t.Errorf("module %q: %v", module, err)
		}
	}
}

func TestCheckKind(t *testing.T) {
	t.Parallel()
	type input struct{ group, version, kind string }
	for in, want := range map[input]error{
		{"web.example.com", "v1alpha1", "WebPage"}:         nil,
		{"0web.example.com", "v2beta10", "X"}:              nil,
		{"web", "v1", "WebPage"}:                           ErrGroup,
		{"Web.example.com", "v1", "WebPage"}:               ErrGroup,
		{"", "v1", "WebPage"}:                              ErrGroup,
		{"web..com", "v1", "WebPage"}:                      ErrGroup,
		{"apps.k8s.io", "v1", "WebPage"}:                   ErrGroup,
		{"web.example.com", "1", "WebPage"}:                ErrVersion,
		{"web.example.com", "v0", "WebPage"}:               ErrVersion,
		{"web.example.com", "v1alpha", "WebPage"}:          ErrVersion,
		{"web.example.com", "v1", "webPage"}:               ErrKind,
		{"web.example.com", "v1", "Web-Page"}:              ErrKind,
		{"web.example.com", "v1", ""}:                      ErrKind,
		{"web.example.com", "v1", "Wébpage"}:               ErrKind,
		{"web.example.com", "v1", "PageList"}:              ErrKind,
		{"web.example.com", "v1", "GroupVersion"}:          ErrKind,
		{"web.example.com", "v1", "No"}:                    ErrKind,
		{"web.example.com", "v1", "Webhooks"}:              ErrKind,
		{"web.example.com", "v1", "Main"}:                  ErrKind,
		{"web.example.com", "v1", "Null"}:                  ErrKind,
		{"1.0", "v1", "WebPage"}:                           ErrGroup,
		{"1.e5", "v1", "WebPage"}:                          ErrGroup,
		{"web.example.com", "v1", strings.Repeat("A", 51)}: ErrKind,
	} {
		if err := checkKind(in.group, in.version, in.kind); !errors.Is(err, want) || want != nil && !Mistaken(err) {
			t.Errorf("%v: %v, want %v", in, err, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for module, want := range map[string]string{
		"example.com/web": "web", "example.com/Web_Page/v2": "web-page", "v2": "v2", "example.com/~": "operator",
		"example.com/3d": "operator-3d", "example.com/true": "operator-true", "example.com/On": "operator-on",
		"example.com/null": "operator-null", "example.com/e5": "e5",
	} {
		if got := nameOf(module); got != want {
			t.Errorf("the name of %s is %q, want %q", module, got, want)
		}
	}
	for word, want := range map[string]string{
		"page": "pages", "box": "boxes", "policy": "policies", "key": "keys", "bus": "buses",
	} {
		if got := plural(word); got != want {
			t.Errorf("the plural of %s is %q, want %q", word, got, want)
		}
	}
	if n := (names{}).of("web.example.com", "v1", strings.Repeat("A", 50)); n.MaxName != 12 {
		t.Errorf("names have at most %d letters", n.MaxName)
	}
	if n := (names{}).of("3d-web.example.com", "v1", "WebPage"); n.Alias != "api3dwebv1" || n.GroupWord != "3d-web" {
		t.Errorf("got %+v", n)
	}
}

// A project that cannot be written leaves no files, whichever step fails.
func TestNothingHalfWritten(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	dir := t.TempDir()
	o := Options{Module: "example.com/web", Group: "web.example.com", Kind: "WebPage"}
	library := filepath.Join(dir, "library") // a directory that the Go command cannot use
	full, file := filepath.Join(dir, "full"), filepath.Join(dir, "file")
	for name, text := range map[string]string{
		filepath.Join(library, "go.mod"): "module " + libraryModule + "\n\ngo 1.26.0\n",
		filepath.Join(full, "a"):         "a", file: "b",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755),
			os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, dir, library string
		want                 error
	}{
		{"a foreign directory is not changed", full, "", ErrNotEmpty},
		{"a file is not a directory", file, "", ErrWrite},
		{"nor is a path below it", filepath.Join(file, "web"), "", ErrWrite},
		{"the parent directory must exist", filepath.Join(dir, "absent", "web"), "", ErrWrite},
		{"not a library", filepath.Join(dir, "web"), full, ErrLibrary},
		{"modules that cannot be found, for a new directory", filepath.Join(dir, "web"), library, ErrTidy},
		{"and for an existing directory", empty, library, ErrTidy},
	} {
		o.Dir, o.Library = tc.dir, tc.library
		before := list(t, dir)
		if _, err := New(t.Context(), o); !errors.Is(err, tc.want) || Mistaken(err) {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(before, list(t, dir)); diff != "" {
			t.Errorf("%s: existing files have changed: %s", tc.reason, diff)
		}
	}
}

// list returns all paths below a directory.
func list(t *testing.T, dir string) (all []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(at string, _ os.DirEntry, err error) error {
		all = append(all, at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// Files of a project are replaced together: if one cannot be, the others are unchanged.
func TestReplaceIsAllOrNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "z", "full"), 0o755); err != nil { // so no file can take its name
		t.Fatal(err)
	}
	before := list(t, dir)
	for _, f := range []files{
		{"a": []byte("new"), "b/c": []byte("new"), "z": []byte("new")},
		{"a": []byte("new"), "a/b": []byte("new")},
	} {
		if err := f.replace(dir); err == nil {
			t.Error("no error")
		}
		if diff := cmp.Diff(before, list(t, dir)); diff != "" {
			t.Errorf("existing files have changed: %s", diff)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(got) != "old" {
			t.Errorf("the file is %q, %v", got, err)
		}
	}
	if err := (files{"a": []byte("new"), "b/c": []byte("new")}).replace(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b/c"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != "new" {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if left := len(list(t, dir)); left != len(before)+2 {
		t.Errorf("there are %d files and directories, want two more than %d", left, len(before))
	}
}

// Deep copies come in the order of the types, by the names under which the file imports packages.
func TestMergeDeepCopy(t *testing.T) {
	t.Parallel()
	of := func(kind string) []byte {
		text, err := deepCopyOf(names{}.of("web.example.com", "v1alpha1", kind))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	types := func(text []byte) (all []string) {
		for _, m := range receiver.FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		return all
	}
	got, err := mergeDeepCopy(of("WebPage"), of("Web"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Web", "WebList", "WebPage", "WebPageList", "WebPageSpec", "WebPageStatus", "WebSpec", "WebStatus"}
	if diff := cmp.Diff(want, types(got)); diff != "" {
		t.Error(diff)
	}
	const unnamed = `"k8s.io/apimachinery/pkg/apis/meta/v1"`
	other := strings.NewReplacer(unnamed, "metav1 "+unnamed, "[]v1.", "[]metav1.").Replace(string(of("WebPage")))
	got, err = mergeDeepCopy([]byte(other), of("Web"))
	if err != nil || !strings.Contains(string(got), "make([]metav1.Condition") ||
		strings.Contains(string(got), "[]v1.") {
		t.Errorf("%v:\n%s", err, got)
	}
	none := strings.Replace(string(of("WebPage")), "\t"+unnamed+"\n", "", 1)
	if got, err = mergeDeepCopy([]byte(none), of("Web")); err != nil || !strings.Contains(string(got), "v1 "+unnamed) {
		t.Errorf("%v:\n%s", err, got)
	}
}
