package apiserver

import (
	"encoding/json"
	stderrors "errors"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

func (x *exchange) patch() error {
	media, _, _ := strings.Cut(x.r.Header.Get("Content-Type"), ";")
	kind := types.PatchType(media)
	switch kind {
	case types.JSONPatchType, types.MergePatchType, types.ApplyYAMLPatchType:
	default:
		if kind != types.StrategicMergePatchType || !x.table.typed {
			return unsupportedMediaType(media)
		}
	}
	o, err := x.patchOptions(kind)
	if err != nil {
		return err
	}
	if kind == types.ApplyYAMLPatchType {
		return x.serverSideApply(o)
	}
	return x.modify(modification{
		dryRun: o.dryRun,
		next: func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			doc, err := json.Marshal(live.Object)
			if err != nil {
				return nil, err
			}
			patched, doubts, err := x.patchedAs(x.table, kind, doc, o.strict)
			if err != nil {
				return nil, err
			}
			next, more, err := x.table.decodePatched(patched)
			if err != nil {
				return nil, err
			}
			x.warnings = nil // of an earlier attempt
			if err := x.heed(o.strict, append(doubts, more...)); err != nil {
				return nil, unfit(string(patched), err)
			}
			x.singleOwners(next)
			next = x.s.apply.update(x.table, x.req.Subresource, live, next, o.manager)
			return next, x.checkIdentity(next)
		},
	})
}

// patchedAs applies the patch of the request to the JSON of an object of a kind. doubts are duplicate fields of the
// patch.
func (x *exchange) patchedAs(
	t *table, kind types.PatchType, doc []byte, strict string,
) (out []byte, doubts []error, err error) {
	if kind == types.JSONPatchType {
		var ops []jsonpatch.Operation
		if strict != metav1.FieldValidationIgnore {
			if doubts, err = kjson.UnmarshalStrict(x.req.Body, &ops); err != nil {
				return nil, nil, errors.NewBadRequest("error decoding patch: " + err.Error())
			}
		}
		p, err := jsonpatch.DecodePatch(x.req.Body)
		if err != nil {
			return nil, nil, errors.NewBadRequest(err.Error())
		}
		if out, err = p.Apply(doc); err != nil { // without kind and name
			return nil, nil, &errors.StatusError{ErrStatus: failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
				"the server rejected our request due to an error in our request: "+err.Error())}
		}
		return out, doubts, nil
	}
	var patch map[string]any
	if doubts, err = kjson.UnmarshalStrict(x.req.Body, &patch); err != nil {
		return nil, nil, errors.NewBadRequest(err.Error())
	}
	if kind == types.MergePatchType {
		if out, err = jsonpatch.MergePatch(doc, x.req.Body); err != nil {
			return nil, nil, errors.NewBadRequest(err.Error())
		}
		return out, doubts, nil
	}
	typed, err := t.res.newTyped()
	if err != nil {
		return nil, nil, err
	}
	if out, err = strategicpatch.StrategicMergePatch(doc, x.req.Body, typed); err != nil {
		return nil, nil, strategicFailure(err)
	}
	return out, doubts, nil
}

// strategicFailure returns the real server's error for an error of a strategic merge patch.
func strategicFailure(err error) error {
	for _, malformed := range []error{
		mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat,
	} {
		if stderrors.Is(err, malformed) {
			return errors.NewBadRequest(err.Error())
		}
	}
	if mergepatch.IsPreconditionFailed(err) || stderrors.Is(err, mergepatch.ErrNoListOfLists) {
		return errors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schemalessResource, "", err.Error(), 0,
			false)
	}
	return err
}

// serverSideApply merges an apply configuration with field ownership. It creates the object if it is missing.
func (x *exchange) serverSideApply(o writeOptions) error {
	return x.modify(modification{
		creates: x.req.Subresource == "", dryRun: o.dryRun,
		next: func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			content, err := unmarshalYAML(x.req.Body)
			if err != nil {
				return nil, errors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
			}
			next, err := x.s.apply.apply(x.table, x.req.Subresource, live, &unstructured.Unstructured{Object: content},
				o.manager, o.force)
			if err != nil {
				return nil, err
			}
			if live.GetUID() == "" && next.GetUID() != "" {
				return nil, errors.NewConflict(x.groupResource(), x.req.Name,
					fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", next.GetUID()))
			}
			return next, x.checkIdentity(next)
		},
	})
}
