package source

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// configured applies options to the zero Config.
func configured(options []Option) (cfg Config) {
	for _, o := range options {
		if o != nil {
			o(&cfg)
		}
	}
	return cfg
}

// OptionsError is a mistake in the options of a source. Another attempt has the same result.
type OptionsError struct{ Err error }

func (e *OptionsError) Error() string { return e.Err.Error() }

func (e *OptionsError) Unwrap() error { return e.Err }

// mistakes returns an *OptionsError that joins errs; nil if there are none.
func mistakes(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &OptionsError{err}
	}
	return nil
}

// Check returns an *OptionsError if options have a mistake that is known without the scope of the resource.
func Check(options []Option) error {
	return mistakes(CheckSelectors(options), CheckNamespaces(options))
}

// CheckSelectors returns an *OptionsError if options have a selector that cannot be parsed.
func CheckSelectors(options []Option) error {
	cfg := configured(options)
	var errs []error
	if _, err := labels.Parse(cfg.LabelSelector); err != nil {
		errs = append(errs, fmt.Errorf("cannot parse label selector %q: %w", cfg.LabelSelector, err))
	}
	if _, err := fields.ParseSelector(cfg.FieldSelector); err != nil {
		errs = append(errs, fmt.Errorf("cannot parse field selector %q: %w", cfg.FieldSelector, err))
	}
	return mistakes(errs...)
}

// CheckNamespaces returns an *OptionsError if options have a namespace that no cluster can have.
func CheckNamespaces(options []Option) error {
	var errs []error
	for _, namespace := range configured(options).Namespaces {
		if faults := validation.IsDNS1123Label(namespace); namespace != "" && len(faults) > 0 {
			errs = append(errs, fmt.Errorf("invalid namespace %q: %s", namespace, strings.Join(faults, "; ")))
		}
	}
	return mistakes(errs...)
}

// CheckClusterScoped returns an *OptionsError if options restrict a source of cluster-scoped objects to namespaces.
func CheckClusterScoped(options []Option) error {
	namespaces := configured(options).Namespaces
	if len(namespaces) == 0 || slices.Contains(namespaces, "") {
		return nil
	}
	return mistakes(fmt.Errorf("the kind is cluster-scoped and cannot be restricted to namespaces (%s)",
		strings.Join(namespaces, ", ")))
}
