package project

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The commands of the tutorial write the files of examples/tutorial that the reader does not change.
func TestTutorialIsGenerated(t *testing.T) {
	t.Parallel()
	dir := writtenFor(t, "sites", "Site")
	if err := errors.Join(newKind(dir, "Route"), newWebhook(dir, "Site"), newVersion(dir, "Site", "v1")); err != nil {
		t.Fatal(err)
	}
	changed := []string{ // by the reader or make manifests
		"Dockerfile", "Makefile", "go.mod", "api/web/v1/site.go", "api/web/v1alpha1/route.go", "api/web/v1alpha1/site.go",
		"api/web/v1/zz_generated.deepcopy.go", "api/web/v1alpha1/zz_generated.deepcopy.go",
		"controller/all_versions.go", "controller/route.go", "controller/route_faults_test.go",
		"controller/route_test.go", "controller/site.go", "controller/site_faults_test.go",
		"controller/site_v1.go", "controller/site_webhook.go", "controller/site_webhook_test.go",
		"deploy/crds/web.example.com_routes.yaml", "deploy/crds/web.example.com_sites.yaml", "deploy/rbac.yaml",
		"samples/route.yaml", "samples/site.yaml",
	}
	compared := 0
	for _, at := range list(t, dir) {
		name, err := filepath.Rel(dir, at)
		if err != nil {
			t.Fatal(err)
		}
		// The example has no tools and no workflow of its own: those of the repository check it.
		if slices.Contains(changed, name) || strings.HasPrefix(name, "tools") || strings.HasPrefix(name, ".github") {
			continue
		}
		want, err := os.ReadFile(at)
		if err != nil {
			continue // a directory
		}
		compared++
		if diff := cmp.Diff(string(want), read(t, "../../../../examples/tutorial", name)); diff != "" {
			t.Errorf("examples/tutorial/%s is not as fairlead new writes it (-want +got):\n%s", name, diff)
		}
	}
	if compared < 10 {
		t.Errorf("only %d files were compared", compared)
	}
}
