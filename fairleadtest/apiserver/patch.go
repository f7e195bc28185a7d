package apiserver

import (
	"encoding/json"
	stderrors "errors"
	"fmt"
	"mime"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

func (x *exchange) patch() error {
	media, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	var fn func([]byte) ([]byte, error)
	switch kind := types.PatchType(media); {
	case kind == types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(x.req.Body)
		if err != nil {
			return errors.NewBadRequest(err.Error())
		}
		fn = func(doc []byte) ([]byte, error) {
			out, err := p.Apply(doc)
			if err != nil {
				return nil, x.unprocessable(err)
			}
			return out, nil
		}
	case kind == types.MergePatchType:
		fn = func(doc []byte) ([]byte, error) { return jsonpatch.MergePatch(doc, x.req.Body) }
	case kind == types.StrategicMergePatchType && x.table.typed:
		typed, err := x.table.res.newTyped()
		if err != nil {
			return err
		}
		fn = func(doc []byte) ([]byte, error) { return strategicpatch.StrategicMergePatch(doc, x.req.Body, typed) }
	case kind == types.ApplyYAMLPatchType:
		return x.serverSideApply()
	default:
		return unsupportedMediaType(x.r.Header.Get("Content-Type"))
	}
	stored, err := x.modify(x.manager(), func(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		doc, err := json.Marshal(live.Object)
		if err != nil {
			return nil, err
		}
		patched, err := fn(doc)
		if err != nil {
			var status errors.APIStatus
			if stderrors.As(err, &status) {
				return nil, err
			}
			return nil, errors.NewBadRequest(err.Error())
		}
		next := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(patched, &next.Object); err != nil || next.Object == nil {
			return nil, errors.NewBadRequest(fmt.Sprintf("the patch does not leave an object: %v", err))
		}
		return next, x.checkIdentity(next)
	})
	if err != nil {
		return err
	}
	return x.answerObject(http.StatusOK, stored)
}

// unprocessable is the answer to a JSON patch that does not fit the object.
func (x *exchange) unprocessable(cause error) error {
	return &errors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity,
		Reason: metav1.StatusReasonInvalid, Message: "the server rejected our request due to an error in our request: " + cause.Error(),
		Details: &metav1.StatusDetails{Name: x.req.Name, Group: x.req.Group, Kind: x.table.res.Resource},
	}}
}

// serverSideApply merges an apply configuration, with ownership of fields; an object that is not there is created.
func (x *exchange) serverSideApply() error {
	manager, force := x.query.Get("fieldManager"), isTrue(x.query.Get("force"))
	if manager == "" {
		return errors.NewBadRequest("fieldManager is required for apply patch")
	}
	config := &unstructured.Unstructured{}
	body, err := yaml.YAMLToJSON(x.req.Body)
	if err == nil {
		err = utiljson.Unmarshal(body, &config.Object)
	}
	if err != nil || config.Object == nil {
		return errors.NewBadRequest(fmt.Sprintf("error decoding the apply configuration: %v", err))
	}
	if config.GetKind() == "" || config.GetAPIVersion() == "" {
		return errors.NewBadRequest("kind and apiVersion are required in an apply configuration")
	}
	if len(config.GetManagedFields()) > 0 {
		return errors.NewBadRequest("metadata.managedFields must be nil")
	}
	if err := x.checkIdentity(config); err != nil {
		return err
	}
	for {
		base := x.s.store.get(x.table, objectKey(x.req.Namespace, x.req.Name))
		if base == nil {
			stored, err := x.applyNew(config, manager, force)
			if errors.IsAlreadyExists(err) {
				continue
			}
			if err != nil {
				return err
			}
			return x.answerObject(http.StatusCreated, stored)
		}
		live, err := base.copy()
		if err != nil {
			return err
		}
		next, err := x.s.apply.apply(x.table, x.req.Subresource, live, config.DeepCopy(), manager, force)
		if err != nil {
			return err
		}
		if v := config.GetResourceVersion(); v != "" {
			next.SetResourceVersion(v)
		} else {
			next.SetResourceVersion("")
		}
		stored, err := x.s.replace(x.r.Context(), x.table, base, live, next, x.req.Subresource, "", x.dryRun())
		if stderrors.Is(err, errRaced) {
			continue
		}
		if err != nil {
			return err
		}
		return x.answerObject(http.StatusOK, stored)
	}
}

func (x *exchange) applyNew(config *unstructured.Unstructured, manager string, force bool) (*object, error) {
	if x.req.Subresource != "" || config.GetUID() != "" {
		return nil, errors.NewNotFound(x.groupResource(), x.req.Name)
	}
	if config.GetResourceVersion() != "" {
		return nil, errors.NewConflict(x.groupResource(), x.req.Name, stderrors.New("the object does not exist"))
	}
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetGroupVersionKind(x.table.res.GVK())
	obj, err := x.s.apply.apply(x.table, "", empty, config.DeepCopy(), manager, force)
	if err != nil {
		return nil, err
	}
	return x.s.insert(x.r.Context(), x.table, obj, "", x.dryRun())
}
