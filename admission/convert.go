package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/place"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// converter converts between the versions of one kind through its hub version.
type converter struct {
	place  string
	kind   schema.GroupKind
	hub    string            // version
	spokes map[string]*spoke // by version
}

// spoke converts one version to the hub and back.
type spoke struct {
	toHub, fromHub func(ctx context.Context, raw []byte) (any, error)
}

func (c *converter) path() string {
	return "/convert/" + strings.ToLower(c.kind.Kind) + "." + c.kind.Group
}

func (c *converter) name() string {
	return "convert." + strings.ToLower(c.kind.Kind) + "." + c.kind.Group
}

func (c *converter) fail(err error) error {
	return &HookError{Hook: c.name(), Kind: c.kind.WithVersion(c.hub), Place: c.place, Err: err}
}

// check returns the mistakes in the converter as a whole.
func (c *converter) check() error {
	if c.kind.Group == "" || !strings.Contains(c.kind.Group, ".") {
		return c.fail(fmt.Errorf("%w: the type is not a custom resource", errInvalid))
	}
	return nil
}

// Convert declares the conversion between two versions of a custom resource: the hub and one other version. Conversions
// between other versions go through the hub. Call Convert once for each version other than the hub. The functions must
// not modify or retain their argument, and must be safe for concurrent use. Data that one version cannot represent must
// be kept in the other one, for example in an annotation; otherwise it is lost when the object is written.
//
// The API server allows conversions to change only labels and annotations in the metadata; other metadata is carried
// over. If the result has no name, labels and annotations are carried over as well.
//
// A conversion has no failure policy: while the program is down, objects in versions other than the stored one can be
// neither read nor written. The manifest of a CustomResourceDefinition with several versions must contain this stanza
// from the start:
//
//	spec:
//	  conversion:
//	    strategy: Webhook
//	    webhook:
//	      clientConfig:
//	        service: {namespace: webpages-system, name: webpages-webhook, path: /convert/webpage.example.com}
//	      conversionReviewVersions: [v1]
//
// The path consists of /convert/, the kind in lower case, a dot and the group. The program fills in the caBundle, and
// sources of the kind wait for that. "Conversion" in the package documentation describes the consequences of a missing
// stanza.
func Convert[S, H any](
	h *Hooks, toHub func(context.Context, *S) (*H, error), fromHub func(context.Context, *H) (*S, error),
) {
	if h == nil || h.host == nil {
		return
	}
	at := place.Outside("github.com/fairlead-io/fairlead/admission")
	name := fmt.Sprintf("of %s and %s", reflect.TypeFor[S](), reflect.TypeFor[H]())
	from, err := kindOf[S](h.host.Client().Scheme())
	to, other := kindOf[H](h.host.Client().Scheme())
	if err = errors.Join(err, other); err != nil {
		h.declared.mistake(&HookError{Hook: name, Place: at, Err: err})
		return
	}
	switch {
	case toHub == nil || fromHub == nil:
		err = fmt.Errorf("%w: a function is nil", errInvalid)
	case from.GroupKind() != to.GroupKind() || from.Version == to.Version:
		err = fmt.Errorf("%w: %s and %s are not two versions of one kind", errInvalid, from, to)
	}
	s := &spoke{toHub: conversion(from, to, toHub), fromHub: conversion(to, from, fromHub)}
	h.declared.addConversion(at, from.Version, to, s, err, func(err error) error {
		return &HookError{Hook: name, Kind: from, Place: at, Err: err}
	})
}

// conversion adapts a typed function to encoded objects.
func conversion[A, B any](
	from, to schema.GroupVersionKind, fn func(context.Context, *A) (*B, error),
) func(context.Context, []byte) (any, error) {
	return func(ctx context.Context, raw []byte) (any, error) {
		in, err := decode[A](raw, from)
		if err != nil {
			return nil, err
		}
		out, err := fn(ctx, in)
		if err != nil {
			return nil, err
		}
		if out == nil {
			return nil, fmt.Errorf("the function returned neither an object nor an error")
		}
		tree, err := encoded(out)
		if err != nil {
			return nil, err
		}
		var was any
		if err := decodeTree(raw, &was); err != nil {
			return nil, err
		}
		result, ok := tree.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("the function returned no object")
		}
		result["apiVersion"], result["kind"] = to.GroupVersion().String(), to.Kind
		carryMetadata(was, result)
		return result, nil
	}
}

// carryMetadata restores the metadata that conversions must not change.
func carryMetadata(from any, to map[string]any) {
	source, _ := from.(map[string]any)
	was, _ := source["metadata"].(map[string]any)
	is, _ := to["metadata"].(map[string]any)
	carried := map[string]any{}
	for k, v := range was {
		carried[k] = v
	}
	if name, _ := is["name"].(string); name != "" {
		for _, k := range []string{"labels", "annotations"} {
			delete(carried, k)
			if v, ok := is[k]; ok {
				carried[k] = v
			}
		}
	}
	to["metadata"] = carried
}

// convertObject converts one object to a version.
func (c *converter) convertObject(ctx context.Context, raw []byte, want schema.GroupVersion) ([]byte, error) {
	var head metav1.PartialObjectMetadata
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil, err
	}
	kind := head.GroupVersionKind()
	if kind.GroupKind() != c.kind || want.Group != c.kind.Group {
		return nil, fmt.Errorf("%s is not converted here to %s", kind, want)
	}
	if kind.Version == want.Version {
		return raw, nil
	}
	for _, step := range []struct {
		at string
		by func(*spoke) func(context.Context, []byte) (any, error)
	}{
		{kind.Version, func(s *spoke) func(context.Context, []byte) (any, error) { return s.toHub }},
		{want.Version, func(s *spoke) func(context.Context, []byte) (any, error) { return s.fromHub }},
	} {
		if step.at == c.hub {
			continue
		}
		s := c.spokes[step.at]
		if s == nil {
			return nil, fmt.Errorf("no conversion for version %s", step.at)
		}
		tree, err := step.by(s)(ctx, raw)
		if err != nil {
			return nil, fmt.Errorf("cannot convert %s %s/%s to %s: %w", kind, head.Namespace, head.Name, want.Version, err)
		}
		if raw, err = json.Marshal(tree); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// convertAll converts the objects of a request in order. It converts all of them or none.
func (c *converter) convertAll(ctx context.Context, in *apiextensionsv1.ConversionRequest) (
	[]runtime.RawExtension, error,
) {
	want, err := schema.ParseGroupVersion(in.DesiredAPIVersion)
	if err != nil {
		return nil, err
	}
	converted := make([]runtime.RawExtension, len(in.Objects))
	for i, o := range in.Objects {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if converted[i].Raw, err = c.convertObject(ctx, o.Raw, want); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

// convert answers one ConversionReview.
func (s *server) convert(ctx context.Context, w http.ResponseWriter, c *converter, body []byte) {
	in, err := readConversion(body)
	if err != nil {
		s.refuse(w, "garbage", http.StatusBadRequest, err.Error())
		return
	}
	start := time.Now()
	response := &apiextensionsv1.ConversionResponse{UID: in.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	ctx, end := s.tracer.begin(ctx, c.name(), "convert", "")
	finish := func(result string) {
		end(result)
		s.metrics.requests.WithLabelValues(c.name(), "convert", result).Inc()
		s.metrics.seconds.WithLabelValues(c.name()).Observe(time.Since(start).Seconds())
	}
	fail := func(err error, message string) {
		finish("failed")
		s.log.ErrorContext(ctx, "cannot convert", "hook", c.name(), "to", in.DesiredAPIVersion, "error", err)
		response.ConvertedObjects = nil
		response.Result = *denied(http.StatusInternalServerError, metav1.StatusReasonInternalError, message)
		write(w, apiextensionsv1.ConversionReview{TypeMeta: conversionType, Response: response})
	}
	p := protect.CallOr(func() { response.ConvertedObjects, err = c.convertAll(ctx, in) },
		func() { fail(errors.New("the function ended its goroutine"), "the conversion failed") })
	switch {
	case p != nil:
		fail(fmt.Errorf("the function panicked: %w", p), "the conversion panicked")
	case err != nil:
		fail(err, err.Error())
	default:
		finish("allowed")
		write(w, apiextensionsv1.ConversionReview{TypeMeta: conversionType, Response: response})
	}
}

func readConversion(body []byte) (*apiextensionsv1.ConversionRequest, error) {
	var review apiextensionsv1.ConversionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, fmt.Errorf("cannot read the review: %w", err)
	}
	switch {
	case review.TypeMeta != conversionType:
		return nil, fmt.Errorf("cannot read the review: it is a %q of %q, must be a %s of %s", review.Kind,
			review.APIVersion, conversionType.Kind, conversionType.APIVersion)
	case review.Request == nil || review.Request.UID == "":
		return nil, errors.New("cannot read the review: it has no request with a uid")
	}
	return review.Request, nil
}
