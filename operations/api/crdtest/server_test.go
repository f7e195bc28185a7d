package crdtest

import (
	"context"
	"encoding/json"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// admission applies the steps that an API server applies to an object of one kind before it stores it.
type admission struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func internal(t testing.TB, kind string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	for _, crd := range v1alpha1.CRDs() {
		if crd.Spec.Names.Kind != kind {
			continue
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		out := new(apiextensions.CustomResourceDefinition)
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, out,
			nil); err != nil {
			t.Fatalf("cannot convert definition: %v", err)
		}
		out.Status.StoredVersions = []string{v1alpha1.GroupVersion.Version}
		return out
	}
	t.Fatalf("no definition of %s", kind)
	return nil
}

func newAdmission(t testing.TB, kind string) admission {
	t.Helper()
	crd := internal(t, kind)
	props := crd.Spec.Validation
	if props == nil {
		props = crd.Spec.Versions[0].Schema
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("cannot make structural schema: %v", err)
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("cannot make validator: %v", err)
	}
	return admission{
		structural: structural, schema: validator,
		rules: cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

// create prunes and defaults obj in place and returns the errors for which an API server refuses it.
func (a admission) create(ctx context.Context, obj map[string]any) field.ErrorList {
	a.prepare(obj)
	errs := validation.ValidateCustomResource(nil, obj, a.schema)
	return append(errs, a.common(ctx, obj, nil)...)
}

// update does the same for obj as a replacement of old, which was admitted before.
func (a admission) update(ctx context.Context, obj, old map[string]any) field.ErrorList {
	a.prepare(obj)
	errs := validation.ValidateCustomResourceUpdate(nil, obj, old, a.schema)
	return append(errs, a.common(ctx, obj, old)...)
}

func (a admission) prepare(obj map[string]any) {
	pruning.Prune(obj, a.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, a.structural)
	defaulting.Default(obj, a.structural)
}

func (a admission) common(ctx context.Context, obj, old map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, a.structural, obj)
	var before any // an untyped nil means that there is no old object
	if old != nil {
		before = old
	}
	ruleErrs, _ := a.rules.Validate(ctx, nil, a.structural, obj, before, celconfig.RuntimeCELCostBudget)
	return append(errs, ruleErrs...)
}

// object decodes JSON as an API server does: whole numbers as int64.
func object(t testing.TB, v any) map[string]any {
	t.Helper()
	data, ok := v.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	return decode(t, data)
}

func TestDefinitionsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{v1alpha1.KindOperation, v1alpha1.KindWebhook} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal(t, kind)) {
				t.Errorf("refused: %v", err)
			}
		})
	}
}
