package e2e_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

const group = "clustertest.fairlead.io"

// crd returns a definition in YAML. plural is without its group.
func crd(plural, kind string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: ` + plural + "." + group + `
  creationTimestamp: null
spec:
  group: ` + group + `
  scope: Namespaced
  names: {plural: ` + plural + `, singular: ` + strings.ToLower(kind) + `, kind: ` + kind + `, listKind: ` + kind +
		`List}
  versions:
  - name: v1
    served: true
    storage: true
    schema: &schema {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - {name: v1beta1, served: true, storage: false, schema: *schema}
  - {name: v1alpha1, served: false, storage: false, schema: *schema}
status: {acceptedNames: {kind: "", plural: ""}, conditions: [], storedVersions: []}
`
}

func object(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	keep := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, ResourceVersion: "1", UID: "read-before"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep},
				},
			}},
		},
	}
}

func TestInstallCRDs(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [bases]\n",
		"notes.txt":          "no YAML: {",
		"bases/one.yaml": "# one\n---\n" + crd("ones", "One") +
			"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: never-made}\n---\n" + crd("twos", "Two"),
		"bases/three.yml": crd("threes", "Three"),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		reason  string
		source  clustertest.CRDSource
		plurals map[string]string
	}{
		{
			"a directory with other files", clustertest.CRDFiles(dir),
			map[string]string{"ones": "One", "twos": "Two", "threes": "Three"},
		},
		{
			"the same files by name, a second time", clustertest.CRDFiles(filepath.Join(dir, "bases/one.yaml")),
			map[string]string{"ones": "One", "twos": "Two"},
		},
		{
			"a file system", clustertest.CRDsIn(fstest.MapFS{"a/four.yaml": {Data: []byte(crd("fours", "Four"))}}),
			map[string]string{"fours": "Four"},
		},
		{
			"an object", clustertest.CRDObjects(object("fives", "Five")),
			map[string]string{"fives": "Five"},
		},
	} {
		var together sync.WaitGroup
		for range 3 {
			together.Go(func() {
				if err := clustertest.ApplyCRDs(t.Context(), config, tc.source); err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
			})
		}
		together.Wait()
		for plural, kind := range tc.plurals {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": kind}}
			u.SetGenerateName("x-")
			if _, err := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).Namespace(
				namespace,
			).
				Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Errorf("%s: %s are not served: %v", tc.reason, plural, err)
			}
		}
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := namespaces.Get(t.Context(), "never-made", metav1.GetOptions{}); err == nil {
		t.Error("an object of another kind was created, too")
	}
}

func TestInstallInvalidCRDs(t *testing.T) {
	t.Parallel()
	config := env.Config(t)
	env.InstallCRDs(t, clustertest.CRDObjects(object("takens", "Taken")))
	unknown := strings.Replace(crd("unknowns", "Unknown"), "  scope: Namespaced\n",
		"  scope: Namespaced\n  scpoe: Namespaced\n", 1)
	for _, tc := range []struct {
		reason string
		source clustertest.CRDSource
		want   string
	}{
		{"no such file", clustertest.CRDFiles("testdata/none.yaml"), "testdata/none.yaml"},
		{"a directory without definitions", clustertest.CRDFiles(t.TempDir()), "there is no CustomResourceDefinition in"},
		{"a file system without definitions", clustertest.CRDsIn(fstest.MapFS{}), "there is none"},
		{"not YAML", clustertest.CRDsIn(fstest.MapFS{"bad.yaml": {Data: []byte("a: {")}}), "bad.yaml"},
		{"an unknown field", clustertest.CRDsIn(fstest.MapFS{"a.yaml": {Data: []byte(unknown)}}), "scpoe"},
		{"a kind of another resource", clustertest.CRDObjects(object("robbers", "Taken")), "the names are taken"},
	} {
		err := clustertest.ApplyCRDs(t.Context(), config, tc.source)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.want)
		}
	}
}

// The Service of a conversion webhook becomes a URL, and the program's own settings stay. Definitions are installed
// even while stored objects cannot be converted.
func TestInstallCRDsWithConversion(t *testing.T) {
	t.Parallel()
	config, namespace := env.Config(t), env.Namespace(t)
	definitions := apiextensions.NewForConfigOrDie(config).CustomResourceDefinitions()
	const name = "converteds." + group
	first := object("converteds", "Converted")
	clustertest.InstallCRDs(t, config, clustertest.CRDObjects(first))
	t.Cleanup(func() { // objects that cannot be converted would keep the definition, and make lists of other tests fail
		ctx := context.WithoutCancel(t.Context())
		if _, err := definitions.Patch(ctx, name, types.MergePatchType,
			[]byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		if err := definitions.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	pages := func(version string) dynamic.ResourceInterface {
		return dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{
			Group: group, Version: version, Resource: "converteds",
		}).Namespace(namespace)
	}
	stored := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1", "kind": "Converted"}}
	stored.SetName("a")
	if _, err := pages("v1").Create(t.Context(), stored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	path := "/convert/converted." + group
	next := first.DeepCopy()
	v2 := *next.Spec.Versions[0].DeepCopy()
	v2.Name, v2.Storage = "v2", false
	next.Spec.Versions = append(next.Spec.Versions, v2)
	next.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				Service: &apiextensionsv1.ServiceReference{Namespace: "system", Name: "hooks", Path: &path},
			},
		},
	}
	check := func(url, bundle string) {
		t.Helper()
		clustertest.InstallCRDs(t, config, clustertest.CRDObjects(next))
		live, err := definitions.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		is := live.Spec.Conversion.Webhook.ClientConfig
		if is.Service != nil || is.URL == nil || *is.URL != url || string(is.CABundle) != bundle {
			t.Errorf("the conversion is %+v, want %s with %q", is, url, bundle)
		}
	}
	check("https://127.0.0.1:9443"+path, "")
	if _, err := pages("v2").Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("an object that cannot be converted was read")
	}
	const theirs = "https://127.0.0.1:1/convert/theirs"
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate(t)}))
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{
		"webhook": map[string]any{"clientConfig": map[string]any{"url": theirs, "caBundle": []byte(bundle)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	check(theirs, bundle)
}

// certificate returns a certificate without trust.
func certificate(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1)}
	raw, err := x509.CreateCertificate(nil, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
