package cli

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/operations"
)

// GroupName parses the name of a group of replicas, namespace/name.
func GroupName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 {
		return "", "", fmt.Errorf("%q is not namespace/name", s)
	}
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 { // it is also a label value
		return "", "", fmt.Errorf("%q is not namespace/name: %s", s, wrong[0])
	}
	return namespace, name, nil
}

// OperationResource parses the name of an operation, which is its resource: TYPE/ID or TYPE ID.
func OperationResource(args []string) (operations.Resource, error) {
	r := operations.Resource{}
	switch len(args) {
	case 1:
		r.Type, r.ID, _ = strings.Cut(args[0], "/")
	case 2:
		r.Type, r.ID = args[0], args[1]
	}
	if r.Type == "" || r.ID == "" {
		return r, Usagef("name the resource as TYPE/ID, such as Application/shop, or as TYPE ID")
	}
	return r, nil
}

// ControllerProgram is the program of a group of operations controllers (group.Options.Program).
const ControllerProgram = "fairlead controller"
