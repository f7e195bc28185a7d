package crd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/internal/custom"
)

// New returns the definitions in manifests, which a server serves from the start. A manifest has any number of
// documents in YAML or JSON; documents of other kinds are ignored. The error names each invalid definition. Without
// manifests, a server serves only definitions that clients create.
func New(manifests ...[]byte) (*apiserver.CRDs, error) {
	compiled := &cache{known: map[string]*custom.Definition{}}
	out := &apiserver.CRDs{Kind: definitionKind(compiled), Find: compiled.find}
	var errs []error
	for _, m := range manifests {
		documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(m), 4096)
		for {
			var content map[string]any
			if err := documents.Decode(&content); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				errs = append(errs, fmt.Errorf("cannot read a manifest: %w", err))
				break
			}
			if content["kind"] != "CustomResourceDefinition" {
				continue
			}
			d, err := initial(content, out)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			out.Initial = append(out.Initial, d)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// initial prepares a definition as a server does at its creation.
func initial(content map[string]any, all *apiserver.CRDs) (out custom.Initial, err error) {
	if version := apiextensionsv1.SchemeGroupVersion.String(); content["apiVersion"] != version {
		return out, fmt.Errorf("cannot serve a definition of version %v: it must be %s", content["apiVersion"], version)
	}
	crd, _, err := decode(content)
	if err != nil {
		return out, err
	}
	crd.Generation = 1
	if out.Content, err = encode(crd); err != nil {
		return out, err
	}
	all.Kind.Prepare(out.Content, nil)
	if errs := all.Kind.Validate(context.Background(), out.Content, nil, false); len(errs) > 0 {
		return out, fmt.Errorf("cannot serve %s: %w", crd.Name, errs.ToAggregate())
	}
	out.Definition, err = all.Find(out.Content)
	return out, err
}

// cache has the compiled definitions by the JSON of their specs.
type cache struct {
	mu    sync.Mutex
	known map[string]*custom.Definition
}

// find compiles a definition, once for each spec.
func (c *cache) find(content map[string]any) (*custom.Definition, error) {
	spec, err := json.Marshal(content["spec"])
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.known[string(spec)]; d != nil {
		return d, nil
	}
	crd, _, err := decode(content)
	if err != nil {
		return nil, err
	}
	d, err := compile(crd)
	if err != nil {
		return nil, fmt.Errorf("cannot serve %s: %w", crd.Name, err)
	}
	const limit = 256 // a test that changes definitions again and again does not fill the memory
	if len(c.known) >= limit {
		clear(c.known)
	}
	c.known[string(spec)] = d
	return d, nil
}

// decode returns the typed definition with its defaults, and the paths of unknown fields.
func decode(content map[string]any) (*apiextensionsv1.CustomResourceDefinition, []string, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, crd, true)
	var unknown []string
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			unknown = append(unknown, e.Error())
		}
		err = nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cannot decode a CustomResourceDefinition: %w", err)
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
	return crd, unknown, nil
}

func encode(crd *apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", crd.Name, err)
	}
	content["kind"], content["apiVersion"] = "CustomResourceDefinition", apiextensionsv1.SchemeGroupVersion.String()
	if meta, ok := content["metadata"].(map[string]any); ok && meta["creationTimestamp"] == nil {
		delete(meta, "creationTimestamp")
	}
	return content, nil
}
