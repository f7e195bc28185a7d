package store

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FieldValue returns the value that the server uses for a field of an object in a field selector. The object is
// READ-ONLY and in the form of JSON: numbers are int64 or float64. A FieldValue must depend on the object alone and be
// safe for concurrent use. If it panics, the store asks the server whether it selects the object.
type FieldValue func(object map[string]any) string

// FieldPath returns a FieldValue for the field at a path, such as ".spec.color". For custom resources the path is the
// jsonPath of spec.versions[].selectableFields. The value of a missing field is "".
func FieldPath(path string) FieldValue {
	return fieldAt(path, "")
}

// fieldAt is FieldPath with another value for a missing field.
func fieldAt(path, missing string) FieldValue {
	names := strings.Split(strings.TrimPrefix(path, "."), ".")
	return func(object map[string]any) string {
		var v any = object
		for _, name := range names {
			members, _ := v.(map[string]any)
			v = members[name]
		}
		if v == nil {
			return missing
		}
		return fmt.Sprint(v)
	}
}

// fieldOf returns the FieldValue of a field of a kind, or nil if only the server can evaluate it. For built-in kinds it
// follows the strategies of kube-apiserver (pkg/registry), for the labels that its conversions (pkg/apis) accept.
func fieldOf(kind schema.GroupKind, label string) FieldValue {
	var path, missing string
	switch kind.String() + " " + label {
	case "Pod spec.nodeName", "Pod spec.restartPolicy", "Pod spec.schedulerName", "Pod spec.serviceAccountName",
		"Pod status.phase", "Pod status.podIP", "Pod status.nominatedNodeName",
		"Namespace status.phase",
		"Secret type",
		"Service spec.clusterIP", "Service spec.type",
		"CertificateSigningRequest.certificates.k8s.io spec.signerName",
		"ClusterTrustBundle.certificates.k8s.io spec.signerName",
		"PodCertificateRequest.certificates.k8s.io spec.signerName",
		"PodCertificateRequest.certificates.k8s.io spec.podName",
		"PodCertificateRequest.certificates.k8s.io spec.nodeName",
		"ResourceSlice.resource.k8s.io spec.nodeName", "ResourceSlice.resource.k8s.io spec.driver":
		path = label
	case "Pod spec.host":
		path = "spec.nodeName"
	case "Pod spec.hostNetwork", "Node spec.unschedulable":
		path, missing = label, "false"
	case "ReplicationController status.replicas":
		path, missing = label, "0"
	case "Job.batch status.successful":
		path, missing = "status.succeeded", "0"
	case "Event source":
		return firstOf(FieldPath("source.component"), FieldPath("reportingComponent"))
	default:
		if !eventField(kind, label) {
			return nil
		}
		path = label
	}
	return fieldAt(path, missing)
}

// eventField reports whether a label is a field of events whose path is the label.
func eventField(kind schema.GroupKind, label string) bool {
	var object string
	switch {
	case kind.Kind != "Event":
		return false
	case kind.Group == "":
		object = "involvedObject."
	case kind.Group == "events.k8s.io":
		object = "regarding."
	default:
		return false
	}
	switch label {
	case "reason", "type":
		return true
	case "reportingComponent":
		return kind.Group == ""
	case "reportingController":
		return kind.Group != ""
	}
	of, ok := strings.CutPrefix(label, object)
	if !ok {
		return false
	}
	switch of {
	case "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath":
		return true
	}
	return false
}

// firstOf returns the first value that is not empty.
func firstOf(values ...FieldValue) FieldValue {
	return func(object map[string]any) (v string) {
		for _, of := range values {
			if v = of(object); v != "" {
				break
			}
		}
		return v
	}
}
