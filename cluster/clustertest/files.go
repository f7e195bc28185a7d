package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// Decode decodes a YAML or JSON file with one object into a Go value, such as the sample of a kind. Unknown fields fail
// the test.
func Decode(t testing.TB, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("cannot decode %s: %v", file, err)
	}
}

// CheckFile compares a generated file with the content that it should have. With update it writes the file instead.
func CheckFile(t testing.TB, file string, want []byte, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is out of date, run make manifests (-want +got):\n%s", file, diff)
	}
}

// Apply applies the objects in YAML or JSON files, as kubectl apply --server-side does. Of a directory it reads the
// files but no directories below it. It skips CustomResourceDefinitions, which InstallCRDs applies, and the files of
// kustomize. A refused object fails the test. The objects are not removed.
func (e *Env) Apply(t testing.TB, paths ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	a, err := newApplier(e.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := objectsIn(paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := a.apply(ctx, o); err != nil {
			t.Fatalf("cannot apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// objectsIn returns the objects of files, Namespaces first.
func objectsIn(paths []string) (all []*unstructured.Unstructured, _ error) {
	for _, p := range paths {
		names := []string{p}
		if info, err := os.Stat(p); err != nil {
			return nil, err
		} else if info.IsDir() {
			names = nil
			for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
				found, err := filepath.Glob(filepath.Join(p, pattern))
				if err != nil {
					return nil, err
				}
				names = append(names, found...)
			}
		}
		for _, name := range names {
			found, err := objectsOf(name)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no objects to apply")
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		rank := map[bool]int{true: -1}
		return rank[a.GetKind() == "Namespace"] - rank[b.GetKind() == "Namespace"]
	})
	return all, nil
}

// objectsOf returns the objects of a file.
func objectsOf(name string) (all []*unstructured.Unstructured, _ error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	documents := yamlutil.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := documents.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, &os.PathError{Op: "decode", Path: name, Err: err}
		}
		kind := o.GroupVersionKind()
		if len(o.Object) > 0 && kind != crdKind && kind.Group != "kustomize.config.k8s.io" {
			all = append(all, o)
		}
	}
}

// applier applies objects of any kind.
type applier struct {
	client dynamic.Interface
	mapper meta.RESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(served)
	if err != nil {
		return nil, err
	}
	return &applier{client, restmapper.NewDiscoveryRESTMapper(groups)}, nil
}

func (a *applier) apply(ctx context.Context, o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	m, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	resource := a.client.Resource(m.Resource)
	at := dynamic.ResourceInterface(resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		at = resource.Namespace(o.GetNamespace())
	}
	force := true
	_, err = at.Patch(ctx, o.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{
		FieldManager: "clustertest", Force: &force, FieldValidation: metav1.FieldValidationStrict,
	})
	return err
}
