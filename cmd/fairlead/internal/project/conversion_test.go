package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// A definition that gets a second version names the Service of the program, and no caBundle.
func TestConvertDefinitions(t *testing.T) {
	t.Parallel()
	n := names{Module: "example.com/web", Name: "web"}.of("web.example.com", "v1", "WebPage")
	content := files{"go.mod": []byte("module example.com/web\n")}
	for _, part := range []string{"project", "example"} {
		if err := content.render(part, n); err != nil {
			t.Fatal(err)
		}
	}
	content["go.mod"] = []byte("module example.com/web\n")
	const one = "deploy/crds/web.example.com_webpages.yaml"
	two := string(content[one])
	version := two[strings.Index(two, "  - additionalPrinterColumns:"):]
	two += strings.Replace(strings.Replace(version, "name: v1\n", "name: v2\n", 1), "storage: true", "storage: false",
		1)
	two = strings.ReplaceAll(strings.ReplaceAll(two, "webpage", "webshop"), "WebPage", "WebShop")
	content["deploy/crds/web.example.com_webshops.yaml"] = []byte(two)
	own := strings.Replace(two, "\nspec:\n", "\nspec:\n  conversion:\n    strategy: None\n", 1)
	content["deploy/crds/own.yaml"] = []byte(own)
	dir := t.TempDir()
	if err := content.write(dir); err != nil {
		t.Fatal(err)
	}
	// the second run changes no file
	for _, want := range [][]string{{"deploy/crds/web.example.com_webshops.yaml"}, nil} {
		made, err := Convert(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, made.Files); diff != "" {
			t.Error(diff)
		}
	}
	for name, was := range map[string]string{one: string(content[one]), "deploy/crds/own.yaml": own} {
		is, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(is) != was {
			t.Errorf("%s was changed, or cannot be read: %v", name, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "deploy/crds/web.example.com_webshops.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	path := "/convert/webshop.web.example.com"
	want := &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service: &apiextensionsv1.ServiceReference{Namespace: "web-system", Name: "web-webhook", Path: &path},
			},
		},
	}
	if diff := cmp.Diff(want, crd.Spec.Conversion); diff != "" {
		t.Error(diff)
	}
}
