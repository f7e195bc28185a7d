package source

import (
	"errors"
	"fmt"
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

// CheckSelectors returns an error if options have a selector that cannot be parsed.
func CheckSelectors(options []Option) error {
	cfg := configured(options)
	var errs []error
	if _, err := labels.Parse(cfg.LabelSelector); err != nil {
		errs = append(errs, fmt.Errorf("cannot parse label selector %q: %w", cfg.LabelSelector, err))
	}
	if _, err := fields.ParseSelector(cfg.FieldSelector); err != nil {
		errs = append(errs, fmt.Errorf("cannot parse field selector %q: %w", cfg.FieldSelector, err))
	}
	return errors.Join(errs...)
}

// CheckNamespaces returns an error if options have a namespace that no cluster can have.
func CheckNamespaces(options []Option) error {
	var errs []error
	for _, namespace := range configured(options).Namespaces {
		if faults := validation.IsDNS1123Label(namespace); namespace != "" && len(faults) > 0 {
			errs = append(errs, fmt.Errorf("invalid namespace %q: %s", namespace, strings.Join(faults, "; ")))
		}
	}
	return errors.Join(errs...)
}
