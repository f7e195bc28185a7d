package schedule

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// manifest is the content of a file.
type manifest struct {
	file    string
	content []byte
}

// readManifests reads a YAML or JSON file, or all such files of a directory.
func readManifests(path string) ([]manifest, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	var out []manifest
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, manifest{file, b})
	}
	return out, nil
}

// ReadObjects reads the objects of a file or a directory.
func ReadObjects(path string) ([]*unstructured.Unstructured, error) {
	manifests, err := readManifests(path)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, m := range manifests {
		d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(m.content), 4096)
		for {
			u := &unstructured.Unstructured{}
			if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("cannot decode %s: %w", m.file, err)
			}
			if len(u.Object) == 0 {
				continue
			}
			if u.GetKind() == "" || u.GetAPIVersion() == "" || u.GetName() == "" {
				return nil, fmt.Errorf("an object in %s has no kind, apiVersion or name", m.file)
			}
			out = append(out, u)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no object in %s", path)
	}
	return out, nil
}

// ReadGiven returns the objects of a file or a directory that are no CustomResourceDefinitions, namespaces first.
func ReadGiven(path string) ([]*unstructured.Unstructured, error) {
	objects, err := ReadObjects(path)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, isDefinition)
	if len(objects) == 0 {
		return nil, fmt.Errorf("there are only CustomResourceDefinitions in %s", path)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Compare(rank(a), rank(b))
	})
	return objects, nil
}

// rank is lower for objects that others need.
func rank(u *unstructured.Unstructured) int {
	if u.GetKind() == "Namespace" {
		return 0
	}
	return 1
}

// definitionVersion is the only version of definitions since Kubernetes v1.22.
const definitionVersion = "apiextensions.k8s.io/v1"

func isDefinition(u *unstructured.Unstructured) bool {
	return u.GetKind() == "CustomResourceDefinition"
}

// ReadDefinitions returns the CustomResourceDefinitions of a file or a directory.
func ReadDefinitions(path string) ([]*unstructured.Unstructured, error) {
	objects, err := ReadObjects(path)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return !isDefinition(u) })
	if len(objects) == 0 {
		return nil, fmt.Errorf("there is no CustomResourceDefinition in %s", path)
	}
	for _, u := range objects {
		if v := u.GetAPIVersion(); v != definitionVersion {
			return nil, fmt.Errorf("the CustomResourceDefinition %s in %s has version %s, which API servers do not serve any "+
				"more: it must be %s", u.GetName(), path, v, definitionVersion)
		}
	}
	return objects, nil
}
