package apiserver

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	optionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The functions of the real server decode and check the options of requests.

// writeOptions are the common options of create, update and patch.
type writeOptions struct {
	dryRun  bool
	manager string
	strict  string // fieldValidation: Ignore, Warn or Strict
	force   bool   // of an apply
}

// parameters decodes the query into options.
func (x *exchange) parameters(into runtime.Object) error {
	if err := optionscheme.ParameterCodec.DecodeParameters(x.query, metav1.SchemeGroupVersion, into); err != nil {
		return errors.NewBadRequest(err.Error())
	}
	return nil
}

func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return errors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

func (x *exchange) createOptions() (writeOptions, error) {
	var o metav1.CreateOptions
	if err := x.parameters(&o); err != nil {
		return writeOptions{}, err
	}
	return x.common(o.DryRun, o.FieldManager, o.FieldValidation),
		invalidOptions("CreateOptions", validation.ValidateCreateOptions(&o))
}

func (x *exchange) updateOptions() (writeOptions, error) {
	var o metav1.UpdateOptions
	if err := x.parameters(&o); err != nil {
		return writeOptions{}, err
	}
	return x.common(o.DryRun, o.FieldManager, o.FieldValidation),
		invalidOptions("UpdateOptions", validation.ValidateUpdateOptions(&o))
}

func (x *exchange) patchOptions(t types.PatchType) (writeOptions, error) {
	var o metav1.PatchOptions
	if err := x.parameters(&o); err != nil {
		return writeOptions{}, err
	}
	w := x.common(o.DryRun, o.FieldManager, o.FieldValidation)
	w.force = o.Force != nil && *o.Force
	return w, invalidOptions("PatchOptions", validation.ValidatePatchOptions(&o, t))
}

func (x *exchange) common(dryRun []string, manager, strict string) writeOptions {
	if manager == "" {
		manager, _, _ = strings.Cut(x.r.UserAgent(), "/")
		manager = manager[:min(len(manager), validation.FieldManagerMaxLength)]
	}
	if strict == "" {
		strict = metav1.FieldValidationWarn
	}
	return writeOptions{dryRun: len(dryRun) > 0, manager: manager, strict: strict}
}

// deleteOptions returns the options from the body. A request without a body has them in its query.
func (x *exchange) deleteOptions() (metav1.DeleteOptions, error) {
	var o metav1.DeleteOptions
	if len(x.req.Body) > 0 {
		media, err := x.bodyType()
		if err == nil {
			err = decodeDeleteOptions(media, x.req.Body, &o)
		}
		if err != nil {
			return o, err
		}
	} else if err := x.parameters(&o); err != nil {
		return o, err
	}
	return o, invalidOptions("DeleteOptions", validation.ValidateDeleteOptions(&o))
}

// listOptions returns the options of a list, a watch or a deletecollection.
func (x *exchange) listOptions() (internalversion.ListOptions, error) {
	var o internalversion.ListOptions
	if err := x.parameters(&o); err != nil {
		return o, err
	}
	o.Watch = x.req.Verb == "watch"
	watchList := !x.s.opts.NoWatchList && !x.plan.watch.noList
	internalversion.SetListOptionsDefaults(&o, watchList)
	if errs := listvalidation.ValidateListOptions(&o, watchList); len(errs) > 0 {
		return o, invalidOptions("ListOptions", errs)
	}
	if o.FieldSelector == nil {
		return o, nil
	}
	for _, r := range o.FieldSelector.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && x.table.res.Fields[r.Field] == nil {
			return o, errors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return o, nil
}
