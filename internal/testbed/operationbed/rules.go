package operationbed

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// rule is a validation rule of the custom resource about changes of an Operation.
type rule struct {
	program  cel.Program
	explains cel.Program // computes the message; nil: it is fixed
	path     string
	message  string
}

var operationRules = sync.OnceValues(func() (rules []rule, err error) {
	env, err := cel.NewEnv(cel.Variable("self", cel.DynType), cel.Variable("oldSelf", cel.DynType))
	if err != nil {
		return nil, err
	}
	for _, crd := range v1alpha1.CRDs() {
		if crd.Spec.Names.Kind != v1alpha1.KindOperation {
			continue
		}
		for _, v := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations {
			r := rule{path: v.FieldPath, message: v.Message}
			if r.program, err = compile(env, v.Rule); err != nil {
				return nil, err
			}
			if v.MessageExpression != "" {
				if r.explains, err = compile(env, v.MessageExpression); err != nil {
					return nil, err
				}
			}
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("the custom resource of Operations has no rules")
	}
	return rules, nil
})

func compile(env *cel.Env, expression string) (cel.Program, error) {
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("cannot compile %q: %w", expression, issues.Err())
	}
	return env.Program(ast)
}

// validateChange rejects a change that violates a rule of the custom resource. It is the Validate of an
// apiserver.Resource.
func validateChange(_ context.Context, obj, old *unstructured.Unstructured) error {
	if old == nil {
		return nil
	}
	rules, err := operationRules()
	if err != nil {
		return err
	}
	var refused field.ErrorList
	for _, r := range rules {
		states := map[string]any{"self": obj.Object, "oldSelf": old.Object}
		out, _, err := r.program.Eval(states)
		if err != nil {
			return fmt.Errorf("cannot evaluate the rule of %s: %w", r.path, err)
		}
		if out.Value() == true {
			continue
		}
		message := r.message
		if r.explains != nil {
			out, _, err := r.explains.Eval(states)
			if err != nil {
				return fmt.Errorf("cannot evaluate the message of %s: %w", r.path, err)
			}
			message = fmt.Sprint(out.Value())
		}
		refused = append(refused, field.Forbidden(field.NewPath(r.path), message))
	}
	if len(refused) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation).GroupKind(), obj.GetName(), refused)
}

// PlayRules checks which changes of an Operation the server rejects and which it accepts by the rules of the custom
// resource.
func PlayRules(b *Bench) {
	b.T.Helper()
	op, err := b.Scheduler.Schedule(b.Ctx, operations.Request{ID: "one", Type: operations.Delete, Resource: Shop})
	if err != nil {
		b.T.Fatal(err)
	}
	patch := func(subresource, body string) error {
		_, err := call.Do(b.Ctx, b.Calls, call.Request{
			Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: v1alpha1.OperationsResource,
			Kind: "Operation", Namespace: op.Namespace, Name: op.Name, Subresource: subresource, Body: []byte(body),
		}, call.Policy{})
		return err
	}
	refused := func(reason, subresource, body, want string) {
		b.T.Helper()
		if err := patch(subresource, body); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			b.T.Errorf("%s: %v, want %q", reason, err, want)
		}
	}
	accepted := func(reason, subresource, body string) {
		b.T.Helper()
		if err := patch(subresource, body); err != nil {
			b.T.Errorf("%s: %v", reason, err)
		}
	}
	const locked = "spec cannot change until the operation that it asks for has ended"
	refused("not picked up: nobody replaces it", "", `{"spec":{"operationID":"two"}}`, locked)
	accepted("picked up", "status", `{"status":{"phase":"In Progress","operationID":"one"}}`)
	refused("in progress: nobody replaces it", "", `{"spec":{"operationID":"two"}}`, locked)
	refused("in progress: nobody changes it", "", `{"spec":{"timeout":"9h"}}`, locked)
	accepted("it may be cancelled", "", `{"spec":{"cancelRequested":true}}`)
	refused("and not be uncancelled", "", `{"spec":{"cancelRequested":false}}`, locked)
	accepted("ended", "status", `{"status":{"phase":"Failed"}}`)
	refused("an outcome stays", "status", `{"status":{"phase":"Success"}}`, "one outcome")
	refused("it is about one resource", "", `{"spec":{"resourceID":"other"}}`, "cannot change")
	accepted("a new request follows", "", `{"spec":{"operationID":"two","cancelRequested":false}}`)
	refused("which nobody replaces before it was picked up", "", `{"spec":{"operationID":"three"}}`, locked)
}
