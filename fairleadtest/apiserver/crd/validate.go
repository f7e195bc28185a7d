package crd

import (
	"context"
	"math"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// validate checks an object like the strategy for custom resources of the real server. A field that was invalid before
// and is unchanged stays allowed.
func (s *schema) validate(ctx context.Context, next, old map[string]any, status bool) field.ErrorList {
	var options []validation.ValidationOption
	var celOptions []cel.Option
	if old != nil && s.structural != nil {
		correlated := common.NewCorrelatedObject(next, old, &model.Structural{Structural: s.structural})
		celOptions = append(celOptions, cel.WithRatcheting(correlated))
		if status {
			correlated = correlated.Key("status")
		}
		options = append(options, validation.WithRatcheting(correlated))
	}
	var errs field.ErrorList
	switch {
	case status:
		if now, ok := next["status"]; ok && s.status != nil {
			errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), now, old["status"], s.status, options...)
		}
	case old != nil:
		errs = validation.ValidateCustomResourceUpdate(nil, next, old, s.whole, options...)
	default:
		errs = validation.ValidateCustomResource(nil, next, s.whole)
	}
	errs = append(errs, s.validateScale(next, status)...)
	if !status {
		errs = append(errs, objectmeta.Validate(ctx, nil, next, s.structural, false)...)
	}
	if old == nil || len(listtype.ValidateListSetsAndMaps(nil, s.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, next)...)
	}
	if s.rules == nil {
		return errs
	}
	if blocksRules(errs) {
		return append(errs, field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to "+
				"complete validation"))
	}
	var before any
	if old != nil {
		before = old
	}
	broken, _ := s.rules.Validate(ctx, nil, s.structural, next, before, celconfig.RuntimeCELCostBudget, celOptions...)
	return append(errs, broken...)
}

// blocksRules reports errors with which rules are not evaluated.
func blocksRules(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(err *field.Error) bool {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return true
		}
		return false
	})
}

// validateScale checks the fields that the scale subresource shows.
func (s *schema) validateScale(content map[string]any, status bool) field.ErrorList {
	if s.scale == nil {
		return nil
	}
	var errs field.ErrorList
	paths := [][]string{s.scale.Status}
	if !status {
		paths = append(paths, s.scale.Spec)
	}
	for _, path := range paths {
		at := field.NewPath("." + strings.Join(path, "."))
		switch n, _, err := unstructured.NestedInt64(content, path...); {
		case err != nil:
			errs = append(errs, field.Invalid(at, n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(at, n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(at, n, "should be less than or equal to 2147483647"))
		}
	}
	if path := s.scale.Selector; path != nil {
		if text, _, err := unstructured.NestedString(content, path...); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("."+strings.Join(path, ".")), text, err.Error()))
		}
	}
	return errs
}
