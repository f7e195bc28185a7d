package crd

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/internal/custom"
)

// definitionKind returns the rules for CustomResourceDefinitions themselves.
func definitionKind(compiled *cache) *custom.Version {
	return &custom.Version{
		Name: apiextensionsv1.SchemeGroupVersion.Version, Served: true, Stored: true, Status: true,
		FromProtobuf: fromProtobuf,
		Coerce: func(content map[string]any) ([]string, error) {
			crd, unknown, err := decode(content)
			if err != nil {
				return nil, err
			}
			meta := content["metadata"]
			coerced, err := encode(crd)
			if err != nil {
				return nil, err
			}
			clear(content)
			maps.Copy(content, coerced)
			if meta != nil { // it has been decoded by its type before
				content["metadata"] = meta
			}
			for i, u := range unknown {
				unknown[i] = strings.TrimSuffix(strings.TrimPrefix(u, `unknown field "`), `"`)
			}
			return unknown, nil
		},
		Default: func(map[string]any) {},
		Empty: func() map[string]any {
			content, err := encode(&apiextensionsv1.CustomResourceDefinition{})
			if err != nil {
				content = map[string]any{}
			}
			return content
		},
		Prepare: prepareDefinition,
		Validate: func(ctx context.Context, next, old map[string]any, status bool) field.ErrorList {
			return validateDefinition(ctx, next, old, status, compiled)
		},
	}
}

// protobuf decodes definitions in the encoding that the typed client of apiextensions-apiserver uses.
var protobuf = func() runtime.Decoder {
	s := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return protobufserializer.NewSerializer(s, s)
}()

func fromProtobuf(body []byte) ([]byte, error) {
	obj, kind, err := protobuf.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(*kind)
	return json.Marshal(obj)
}

// prepareDefinition keeps the status, and records the stored version in it.
func prepareDefinition(next, old map[string]any) {
	status, _ := old["status"].(map[string]any)
	if status == nil {
		status = map[string]any{
			"acceptedNames": map[string]any{"kind": "", "plural": ""}, "conditions": nil, "storedVersions": []any{},
		}
	} else {
		status = maps.Clone(status)
	}
	spec, _ := next["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		v, _ := v.(map[string]any)
		stored, _ := status["storedVersions"].([]any)
		if v["storage"] == true && !slices.Contains(stored, v["name"]) {
			status["storedVersions"] = append(slices.Clone(stored), v["name"])
		}
	}
	next["status"] = status
}

func validateDefinition(ctx context.Context, next, old map[string]any, status bool, compiled *cache) field.ErrorList {
	path := field.NewPath("spec")
	crd, err := internal(next)
	if err != nil {
		return field.ErrorList{field.Invalid(path, nil, err.Error())}
	}
	var errs field.ErrorList
	if old == nil {
		errs = validation.ValidateCustomResourceDefinition(ctx, crd)
	} else {
		before, err := internal(old)
		if err != nil {
			return field.ErrorList{field.Invalid(path, nil, err.Error())}
		}
		if status {
			errs = validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, crd, before)
		} else {
			errs = validation.ValidateCustomResourceDefinitionUpdate(ctx, crd, before)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if _, err := compiled.find(next); err != nil {
		errs = append(errs, field.Invalid(path, nil, err.Error()))
	}
	return errs
}

// internal converts an object to the version that the functions for validation need.
func internal(content map[string]any) (*apiextensions.CustomResourceDefinition, error) {
	crd, _, err := decode(content)
	if err != nil {
		return nil, err
	}
	out := &apiextensions.CustomResourceDefinition{}
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, out, nil)
}
