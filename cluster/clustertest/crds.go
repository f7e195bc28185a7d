package clustertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// CRDSource yields CustomResourceDefinitions (apiextensions.k8s.io/v1). [CRDFiles], [CRDsIn] and [CRDObjects] return
// one.
type CRDSource func() ([]definition, error)

// definition is a CustomResourceDefinition and its JSON, which also has fields that the Go type does not know.
type definition struct {
	crd apiextensionsv1.CustomResourceDefinition
	raw []byte
}

// CRDFiles reads YAML or JSON files, which may contain several documents. For a directory it reads all such files below
// it. It skips other kinds of objects. Relative paths start at the directory of the tested package.
func CRDFiles(paths ...string) CRDSource {
	return func() ([]definition, error) {
		var all []definition
		for _, p := range paths {
			info, err := os.Stat(p)
			if err != nil {
				return nil, err
			}
			from := CRDsIn(os.DirFS(p))
			if !info.IsDir() {
				from = func() ([]definition, error) { return readFile(os.DirFS(filepath.Dir(p)), filepath.Base(p)) }
			}
			found, err := from()
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, fmt.Errorf("there is no CustomResourceDefinition in %s", p)
			}
			all = append(all, found...)
		}
		return all, nil
	}
}

// CRDsIn reads all YAML and JSON files of a file system, such as an embed.FS, like [CRDFiles].
func CRDsIn(fsys fs.FS) CRDSource {
	return func() (all []definition, _ error) {
		err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
				return err
			}
			found, err := readFile(fsys, name)
			all = append(all, found...)
			return err
		})
		return all, err
	}
}

// CRDObjects returns a source of definitions made in Go. It does not modify them.
func CRDObjects(crds ...*apiextensionsv1.CustomResourceDefinition) CRDSource {
	return func() ([]definition, error) {
		var all []definition
		for _, crd := range crds {
			raw, err := json.Marshal(crd)
			if err != nil {
				return nil, err
			}
			d, err := newDefinition(raw)
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		return all, nil
	}
}

var crdKind = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")

func readFile(fsys fs.FS, name string) (found []definition, _ error) {
	raw, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		var document json.RawMessage
		var head metav1.TypeMeta
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err == nil && len(document) > 0 {
			err = json.Unmarshal(document, &head)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if head.GroupVersionKind() != crdKind {
			continue
		}
		d, err := newDefinition(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, d)
	}
}

// newDefinition keeps only the fields that may be applied, also of an object that was read from a server.
func newDefinition(raw []byte) (d definition, err error) {
	var document struct {
		Metadata struct {
			Name        string            `json:"name"`
			Labels      map[string]string `json:"labels,omitempty"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
		metav1.TypeMeta
	}
	if err = json.Unmarshal(raw, &document); err != nil {
		return d, err
	}
	document.APIVersion, document.Kind = crdKind.ToAPIVersionAndKind()
	if d.raw, err = json.Marshal(document); err != nil {
		return d, err
	}
	return d, json.Unmarshal(d.raw, &d.crd)
}

// InstallCRDs installs CustomResourceDefinitions in the control plane of config. It returns when the API server serves
// all their versions and includes them in discovery. The test fails if that takes more than five minutes.
//
// The definitions are applied (server-side, by force), so installation can be repeated, also by concurrent tests and
// packages. A different definition of the same name is replaced; the server uses the new schema a moment later.
// Definitions are not removed, since other tests may use them. Their names are therefore shared; objects belong in a
// namespace of the test.
//
// The Service of a conversion webhook is replaced by a local URL, since a Service cannot reach a local program. It is
// the URL that the program has already written, or else https://127.0.0.1:9443 with the path of the Service. A program
// that uses package admission writes its own URL.
func InstallCRDs(t testing.TB, config *rest.Config, sources ...CRDSource) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	if err := ApplyCRDs(ctx, config, sources...); err != nil {
		t.Fatalf("cannot install CustomResourceDefinitions: %v", err)
	}
}

// InstallCRDs is like the function [InstallCRDs] for the control plane of e.
func (e *Env) InstallCRDs(t testing.TB, sources ...CRDSource) {
	t.Helper()
	InstallCRDs(t, e.Config(t), sources...)
}

// ApplyCRDs is like InstallCRDs for programs: it returns an error, at the latest when ctx ends.
func ApplyCRDs(ctx context.Context, config *rest.Config, sources ...CRDSource) error {
	var all []definition
	for _, source := range sources {
		found, err := source()
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return errors.New("there is none")
	}
	api, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	told, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	force := true
	for _, d := range all {
		raw, err := d.localized(ctx, api)
		if err != nil {
			return fmt.Errorf("%s: %w", d.crd.Name, err)
		}
		_, err = api.CustomResourceDefinitions().Patch(ctx, d.crd.Name, types.ApplyPatchType, raw,
			metav1.PatchOptions{FieldManager: "clustertest", Force: &force, FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return fmt.Errorf("%s: %w", d.crd.Name, err)
		}
	}
	i := inspector{api, told}
	for _, d := range all {
		if err := i.served(ctx, &d.crd); err != nil {
			return fmt.Errorf("%s: %w", d.crd.Name, err)
		}
	}
	return nil
}

// inspector checks which resources an API server serves.
type inspector struct {
	api  *apiextensions.ApiextensionsV1Client
	told *discovery.DiscoveryClient
}

// served waits until a resource can be used. It polls, since the wait is short.
func (i *inspector) served(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		missing, err := i.unserved(ctx, crd)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("it is not served: %s: %w", missing, context.Cause(ctx))
		}
	}
}

// unserved returns the part of a resource that is not served yet. An error is permanent.
func (i *inspector) unserved(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (string, error) {
	live, err := i.api.CustomResourceDefinitions().Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	established := false
	for _, c := range live.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse {
			return "", fmt.Errorf("the names are taken: %s", c.Message)
		}
		established = established || c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	}
	if !established {
		return "it is not established", nil
	}
	_, byVersion, _, err := i.told.GroupsAndMaybeResourcesWithContext(ctx)
	if err != nil {
		return err.Error(), nil
	}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
		resources := byVersion[gv]
		is := func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }
		if resources == nil || !slices.ContainsFunc(resources.APIResources, is) {
			return "discovery does not tell of " + v.Name, nil
		}
		list := i.api.RESTClient().Get().AbsPath("/apis", gv.Group, gv.Version, crd.Spec.Names.Plural).Param("limit", "1")
		if err := list.Do(ctx).Error(); err != nil && !awaitsConversion(crd, err) {
			return err.Error(), nil
		}
	}
	return "", nil
}
