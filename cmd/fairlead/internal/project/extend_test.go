package project

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/rights"
)

const group = "web.example.com"

// written writes a new project with the kind WebPage, without its go.sum, and returns its directory.
func written(t *testing.T) string {
	t.Helper()
	return writtenFor(t, "web", "WebPage")
}

func writtenFor(t *testing.T, name, kind string) string {
	t.Helper()
	n := names{Module: "example.com/" + name, Name: name, Go: oldest, Example: true}.of(group, "v1alpha1", kind)
	content, dir := files{}, t.TempDir()
	for _, part := range []string{"project", "group", "example", "faults"} {
		if err := content.render(part, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(addGenerated(content, n), content.write(dir), link(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// snapshot returns all files of a project.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, at := range list(t, dir) {
		if text, err := os.ReadFile(at); err == nil {
			all[at] = string(text)
		} else {
			all[at] = "" // a directory
		}
	}
	return all
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// replace changes a file of a project.
func replace(t *testing.T, dir, name, from, to string) {
	t.Helper()
	text := read(t, dir, name)
	if !strings.Contains(text, from) {
		t.Fatalf("%s has no %q", name, from)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(text, from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func newKind(dir, kind string) error {
	_, err := NewKind(KindOptions{Dir: dir, Group: group, Kind: kind})
	return err
}

func newWebhook(dir, kind string) error {
	_, err := NewWebhook(WebhookOptions{Dir: dir, Group: group, Kind: kind})
	return err
}

func newVersion(dir, kind, version string) error {
	_, err := NewVersion(VersionOptions{Dir: dir, Group: group, Kind: kind, Version: version})
	return err
}

// A command that fails returns one error and changes nothing.
func TestExtendChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		before func(dir string) error // commands and changes that succeed
		do     func(dir string) error
		want   error
		text   string
	}{
		{
			"no project", func(dir string) error { return os.Remove(filepath.Join(dir, "go.mod")) },
			func(dir string) error { return newWebhook(dir, "WebPage") }, ErrNoProject, "go.mod",
		},
		{
			"a second time: kind", nil, func(dir string) error { return newKind(dir, "WebPage") },
			ErrExists, `cannot use kind "WebPage"`,
		},
		{
			"a second time: webhook", func(dir string) error { return newWebhook(dir, "WebPage") },
			func(dir string) error { return newWebhook(dir, "WebPage") }, ErrExists, "controller/webpage_webhook.go",
		},
		{
			"a second time: version", func(dir string) error { return newVersion(dir, "WebPage", "v1") },
			func(dir string) error { return newVersion(dir, "WebPage", "v1") }, ErrExists, `version "v1"`,
		},
		{
			"the stored version", nil, func(dir string) error { return newVersion(dir, "WebPage", "v1alpha1") },
			ErrExists, "webpages.yaml has it",
		},
		{
			"an unknown kind: webhook", nil, func(dir string) error { return newWebhook(dir, "Other") },
			ErrUnknown, "no file of deploy/crds defines it",
		},
		{
			"an unknown kind: version", nil, func(dir string) error { return newVersion(dir, "Other", "v1") },
			ErrUnknown, "no file of deploy/crds defines it",
		},
		{
			"an invalid version", nil, func(dir string) error { return newVersion(dir, "WebPage", "2") },
			ErrVersion, "use one such as",
		},
		{
			"a marker that was removed", func(dir string) error {
				replace(t, dir, "main.go", "//fairlead:new webhooks", "")
				return nil
			}, func(dir string) error { return newWebhook(dir, "WebPage") }, ErrNoProject, "main.go has no line",
		},
		{
			"types in another file", func(dir string) error {
				replace(t, dir, "api/web/v1alpha1/webpage.go", "Port int32", "Port Port")
				return os.WriteFile(filepath.Join(dir, "api/web/v1alpha1/port.go"),
					[]byte("package v1alpha1\n\ntype Port int32\n"), 0o644)
			}, func(dir string) error { return newVersion(dir, "WebPage", "v1") }, ErrTypes, "uses Port of port.go",
		},
		{
			"types in a file of another name", func(dir string) error {
				at := filepath.Join(dir, "api/web/v1alpha1")
				return os.Rename(filepath.Join(at, "webpage.go"), filepath.Join(at, "types.go"))
			}, func(dir string) error { return newVersion(dir, "WebPage", "v1") }, ErrTypes,
			"have to be in api/web/v1alpha1/webpage.go",
		},
		{
			"a definition in another form", func(dir string) error {
				replace(t, dir, "deploy/crds/web.example.com_webpages.yaml", "\n  versions:\n", "\n  versions: # all\n")
				return nil
			}, func(dir string) error { return newVersion(dir, "WebPage", "v1") }, ErrNoProject, "there is no line",
		},
	} {
		dir := written(t)
		if tc.before != nil {
			if err := tc.before(dir); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
		}
		before := snapshot(t, dir)
		err := tc.do(dir)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q with %q", tc.reason, err, tc.want, tc.text)
		}
		if diff := cmp.Diff(before, snapshot(t, dir)); diff != "" {
			t.Errorf("%s: the project has changed: %s", tc.reason, diff)
		}
	}
}

// A version is served and not stored, in the order of controller-gen, and the stored one is marked.
func TestNewVersion(t *testing.T) {
	t.Parallel()
	dir := written(t)
	for _, version := range []string{"v1", "v1beta1"} {
		if err := newVersion(dir, "WebPage", version); err != nil {
			t.Fatal(err)
		}
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(read(t, dir, "deploy/crds/web.example.com_webpages.yaml")), &crd); err != nil {
		t.Fatal(err)
	}
	type version struct {
		Name            string
		Served, Storage bool
	}
	var got []version
	for _, v := range crd.Spec.Versions {
		got = append(got, version{v.Name, v.Served, v.Storage})
		if diff := cmp.Diff(crd.Spec.Versions[0].Schema, v.Schema); diff != "" {
			t.Errorf("the schema of %s: %s", v.Name, diff)
		}
	}
	want := []version{{"v1", true, false}, {"v1alpha1", true, true}, {"v1beta1", true, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c := crd.Spec.Conversion; c == nil || c.Strategy != apiextensionsv1.WebhookConverter {
		t.Errorf("the conversion is %v", c)
	}
	for file, marks := range map[string]int{
		"api/web/v1alpha1/webpage.go": 1, "api/web/v1/webpage.go": 0, "api/web/v1beta1/webpage.go": 0,
	} {
		if n := strings.Count(read(t, dir, file), storageMarker); n != marks {
			t.Errorf("%s has %d markers of the storage, want %d", file, n, marks)
		}
	}
	declared := read(t, dir, webhooksFile)
	for _, line := range []string{"declareWebPageV1(rt, h)", "declareWebPageV1beta1(rt, h)"} {
		if !strings.Contains(declared, line) {
			t.Errorf("%s has no %s", webhooksFile, line)
		}
	}
}

// The first webhook adds the server, the second one only its declaration.
func TestNewWebhook(t *testing.T) {
	t.Parallel()
	dir := written(t)
	if err := newKind(dir, "Site"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"WebPage", "Site"} {
		if err := newWebhook(dir, kind); err != nil {
			t.Fatal(err)
		}
	}
	for file, line := range map[string]string{
		"main.go": "controller.ServeWebhooks(rt, inCluster)", "controller/all_controllers_test.go": "ServeWebhooks(rt, true)",
		"deploy/deployment.yaml": "containerPort: 9443", "deploy/kustomization.yaml": "- webhook.yaml",
		"deploy/webhook.yaml": "name: web-webhook", webhooksFile: "declareSiteWebhooks(rt, h)",
	} {
		if n := strings.Count(read(t, dir, file), line+"\n"); n != 1 && file != "deploy/webhook.yaml" &&
			file != "deploy/deployment.yaml" {
			t.Errorf("%s has %d lines %q", file, n, line)
		} else if !strings.Contains(read(t, dir, file), line) {
			t.Errorf("%s has no %q", file, line)
		}
	}
	for _, tc := range []struct {
		defaulting, validating bool
	}{{true, false}, {false, true}} {
		only := written(t)
		_, err := NewWebhook(WebhookOptions{
			Dir: only, Group: group, Kind: "WebPage", Defaulting: tc.defaulting, Validating: tc.validating,
		})
		if err != nil {
			t.Fatal(err)
		}
		text := read(t, only, "controller/webpage_webhook.go")
		if strings.Contains(text, "admission.Mutate") != tc.defaulting ||
			strings.Contains(text, "admission.Validate") != tc.validating {
			t.Errorf("%+v:\n%s", tc, text)
		}
	}
}

// The types of a kind have the scope of the command.
func TestClusterScoped(t *testing.T) {
	t.Parallel()
	dir := written(t)
	if _, err := NewKind(KindOptions{Dir: dir, Group: group, Kind: "Zone", ClusterScoped: true}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"deploy/crds/web.example.com_zones.yaml": "scope: Cluster", "api/web/v1alpha1/zone.go": "path=zones,scope=Cluster",
	} {
		if !strings.Contains(read(t, dir, file), want) {
			t.Errorf("%s has no %s", file, want)
		}
	}
	if sample := read(t, dir, "samples/zone.yaml"); strings.Contains(sample, "namespace:") {
		t.Errorf("the sample is\n%s", sample)
	}
}

// Rights are added to a role as make manifests writes it. A role in another form stays as it is.
func TestGrant(t *testing.T) {
	t.Parallel()
	dir := written(t)
	p, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := p.names(group, "v1alpha1", "Site")
	grant(p, emptyRights(n)...)
	r, err := parseRole(p.content[roleFile])
	if err != nil {
		t.Fatal(err)
	}
	has := func(resource, subresource, verb string) bool {
		return slices.ContainsFunc(r.rights, func(r rights.Right) bool {
			return r.Kind.Kind == resource && r.Subresource == subresource && slices.Contains(r.Verbs, verb)
		})
	}
	for _, want := range [][3]string{
		{"sites", "", "watch"},
		{"sites", "status", "patch"},
		{"webpages", "", "watch"},
		{"leases", "", "update"},
		{"tokenreviews", "", "create"},
	} {
		if !has(want[0], want[1], want[2]) {
			t.Errorf("the role lacks %v:\n%s", want, p.content[roleFile])
		}
	}
	if want := (rights.Account{Namespace: "web-system", Name: "web"}); r.account != want {
		t.Errorf("the account is %v", r.account)
	}
	replace(t, dir, roleFile, "- watch\n", "- watch # always\n")
	other, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if grant(other, emptyRights(n)...); other.content[roleFile] != nil {
		t.Errorf("an edited role was rewritten:\n%s", other.content[roleFile])
	}
}
