package httpapi

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// FuzzMisshapen: a value is reported as misshapen exactly if a strict decoder refuses it.
func FuzzMisshapen(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"timeout":"1s","webhookIDs":["a",null]}`, `{"timeout":null,"Timeout":1}`,
		`{"requestObject":{"resource":[1],"headers":{"a":null}}}`,
		`{"relatedResources":[{"lock":0},{"resourceType":{}}],"x":1}`, `{"cancelRequested":true,"requestObject":null}`, `[1]`,
		`"a"`, `{"resourceType":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		var spec v1alpha1.OperationSpec
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		err := strict.Decode(&spec)
		wrong := misshapen("spec", raw, reflect.TypeOf(spec))
		if (err == nil) != (len(wrong) == 0) {
			t.Errorf("%s: %v, but %v", raw, err, wrong)
		}
	})
}
