package executor

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestTemplatesSeeEveryField renders each field of a spec that sets only the required fields. Numbers keep the form in
// which they were written.
func TestTemplatesSeeEveryField(t *testing.T) {
	op := &v1alpha1.Operation{Spec: v1alpha1.OperationSpec{
		OperationType:     v1alpha1.OperationDelete,
		ResourceReference: v1alpha1.ResourceReference{ResourceType: "app", ResourceID: "1"},
	}}
	op.UID = "uid"
	op.Default()
	var names []string
	var collect func(reflect.Type)
	collect = func(s reflect.Type) {
		for f := range s.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Anonymous {
				collect(f.Type)
			} else {
				names = append(names, name)
			}
		}
	}
	collect(reflect.TypeFor[v1alpha1.OperationSpec]())
	fields := specFields(op.EffectiveID(), op.Spec)
	for _, name := range names {
		if _, ok := fields[name]; !ok {
			t.Errorf(".Operation.%s fails in a template where it is not set", name)
		}
	}
	if len(names) < 15 || fields["operationID"] != "uid" {
		t.Errorf("fields %v of %v", fields, names)
	}

	op.Spec.RequestObject = &v1alpha1.RequestObject{
		Resource: &apiextensionsv1.JSON{Raw: []byte(`{"id":9007199254740993}`)},
	}
	if raw, err := json.Marshal(specFields(op.EffectiveID(), op.Spec)); err != nil ||
		!strings.Contains(string(raw), `"id":9007199254740993`) {
		t.Errorf("a number has changed: %s, %v", raw, err)
	}
}
