package deploytest

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// release runs hack/release.sh.
func release(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../hack/release.sh", args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("release.sh %v: %w: %s", args, err, &errs)
	}
	return string(out), nil
}

// plugin is a manifest of krew. Fields that tests do not use are errors.
type plugin struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             struct {
		Version, Homepage, ShortDescription, Description, Caveats string

		Platforms []struct {
			Selector         struct{ MatchLabels map[string]string }
			URI, SHA256, Bin string
		}
	}
}

// TestKrew: the manifest of a release has an archive with its checksum for each platform.
func TestKrew(t *testing.T) {
	t.Parallel()
	const version = "v1.2.3"
	names, err := release(t, "names", version)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var sums strings.Builder
	want := map[string]string{}
	for i, name := range strings.Fields(names) {
		sum := fmt.Sprintf("%064x", i)
		want[name] = sum
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
	}
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := release(t, "manifest", version, dir); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "fairlead.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got plugin
	if err := yaml.UnmarshalStrict(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || got.Kind != "Plugin" ||
		got.Metadata.Name != "fairlead" || got.Spec.Version != version || len(got.Spec.ShortDescription) > 50 ||
		got.Spec.ShortDescription == "" || got.Spec.Description == "" {
		t.Errorf("krew refuses %+v", got)
	}
	have := map[string]string{}
	for _, p := range got.Spec.Platforms {
		name := path.Base(p.URI)
		have[name] = p.SHA256
		labels := p.Selector.MatchLabels
		if name != fmt.Sprintf("fairlead_%s_%s_%s.tar.gz", version, labels["os"], labels["arch"]) || p.Bin != "fairlead" ||
			p.URI != "https://github.com/fairlead-io/fairlead/releases/download/"+version+"/"+name {
			t.Errorf("%v is not at its path: %s", labels, p.URI)
		}
		if sum, err := hex.DecodeString(p.SHA256); err != nil || len(sum) != 32 {
			t.Errorf("%s has the sum %s", name, p.SHA256)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" || len(have) != 4 {
		t.Errorf("archives and sums (-made +in the manifest):\n%s", diff)
	}

	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"manifest", version, dir},
		{"names", "1.2.3"},
		{"names"},
		{"archives", version},
		{"all", version},
	} {
		if out, err := release(t, args...); err == nil {
			t.Errorf("%v: got %s", args, out)
		}
	}
}

// TestReleaseCheck: a version that is not written in all required files cannot be released.
func TestReleaseCheck(t *testing.T) {
	t.Parallel()
	_, err := release(t, "check", "v99.0.0")
	if err == nil {
		t.Fatal("v99.0.0 is ready")
	}
	for _, file := range []string{"deploy/kustomization.yaml", "deploy/chart/Chart.yaml", "CHANGELOG.md"} {
		if !strings.Contains(err.Error(), file) {
			t.Errorf("nothing about %s: %v", file, err)
		}
	}
}

// workflow is a workflow of GitHub, as far as tests read it.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		Needs       string
		Permissions map[string]string
		Steps       []struct{ Uses, Run string }
	}
}

var (
	pinned  = regexp.MustCompile(`^[a-z-]+/[a-z-]+@v[0-9]+\.[0-9]+\.[0-9]+$`)
	scripts = regexp.MustCompile(`(?m)(?:^|\s)((?:hack|deploy|\.ci)/[A-Za-z./-]+)`)
	targets = regexp.MustCompile(`make ([a-z]+)`)
)

// TestWorkflow: publishing jobs run after the tests with only their own rights. Actions have fixed versions, and all
// commands exist.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(raw, &w); err != nil {
		t.Fatal(err)
	}
	if w.Permissions == nil || len(w.Permissions) > 0 {
		t.Errorf("every job has %v", w.Permissions)
	}
	var all []string
	for name, job := range w.Jobs {
		before := job.Needs
		for before != "" && before != "test" {
			before = w.Jobs[before].Needs
		}
		for right, level := range job.Permissions {
			if level == "write" && before != "test" {
				t.Errorf("%s writes %s, and does not wait for the tests", name, right)
			}
		}
		for _, step := range job.Steps {
			if step.Uses != "" && !pinned.MatchString(step.Uses) {
				t.Errorf("%s uses %s, which has no fixed version", name, step.Uses)
			}
			all = append(all, step.Run)
		}
	}
	runs := strings.Join(all, "\n")
	for _, m := range scripts.FindAllStringSubmatch(runs, -1) {
		if _, err := os.Stat("../../" + m[1]); err != nil {
			t.Error(err)
		}
	}
	for _, m := range targets.FindAllStringSubmatch(runs, -1) {
		if !strings.Contains(string(makefile), "\n"+m[1]+":") {
			t.Errorf("there is no target %s", m[1])
		}
	}
	for _, want := range []string{
		".ci/run", "release.sh check", "make release", "SHA256SUMS", "docker buildx build --platform linux/amd64,linux/arm64",
		"helm package deploy/chart",
	} {
		if !strings.Contains(runs, want) {
			t.Errorf("nothing runs %s", want)
		}
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, helm, _ := strings.Cut(string(module), "helm.sh/helm/v4 ")
	helm, _, _ = strings.Cut(helm, "\n")
	if !strings.Contains(string(raw), "{version: "+helm+"}") {
		t.Errorf("the chart is packaged by another helm than %s, which renders it here", helm)
	}
	if got := load(t).Values["image"].(values)["repository"]; !strings.Contains(runs,
		fmt.Sprintf("repository: %s$|", got)) {
		t.Errorf("the chart that is published names the image %s", got)
	}
	if names := slices.Sorted(maps.Keys(w.Jobs)); !slices.Equal(names, []string{"archives", "chart", "image", "test"}) {
		t.Errorf("jobs %v", names)
	}
}
