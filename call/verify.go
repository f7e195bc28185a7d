package call

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// repeatable reports whether a write with an unknown outcome may be sent again without harm.
func repeatable(r *Request, sent []byte) bool {
	if r.Idempotent {
		return true
	}
	switch r.Verb {
	case VerbDelete, VerbDeleteCollection, VerbApply:
		return true
	case VerbCreate:
		// With a fixed name, the server refuses the second create. The create of a subresource is an action.
		return r.Subresource == "" && identity(r, sent).Name != ""
	case VerbUpdate:
		return identity(r, sent).ResourceVersion != ""
	case VerbPatch:
		switch r.PatchType {
		case types.MergePatchType:
			return true // RFC 7396: the second application changes nothing
		case types.JSONPatchType:
			return testsVersion(sent)
		default:
			return identity(r, sent).ResourceVersion != ""
		}
	}
	return true
}

// changes reports whether a request changes state on the server: it is a write and not a dry run.
func changes(r *Request, sent []byte) bool {
	if !r.Verb.write() {
		return false
	}
	if r.deletes() && len(sent) > 0 { // the server ignores the query
		var options struct{ DryRun []string }
		return json.Unmarshal(sent, &options) != nil || len(options.DryRun) == 0
	}
	return r.Query.Get("dryRun") == ""
}

// readable reports whether the object that a create conflicted with can be read. An action creates no object, and the
// name in an unknown body is unknown.
func readable(r *Request, sent []byte) bool {
	return r.Subresource == "" && identity(r, sent).Name != ""
}

// verify evaluates the read of the live object that follows a refusal after an unknown outcome. If the read fails, the
// refusal is the result and the outcome remains unknown.
func verify(r *Request, p Policy, sent []byte, pr progress, a answer, rnd func() float64) (outcome, progress) {
	refusal := pr.verifying
	status := statusOf(a)
	if a.err == nil && a.code < 300 && plausible(a) == nil {
		pr.verifying = nil
		if shows(r, sent, a.body) {
			return succeed(a, pr, true), pr
		}
		// The write may have been executed and overwritten since. For a create, the existing object shows that it was not.
		o := outcome{action: fail, reason: string(metav1.StatusReasonConflict), err: refusal.err}
		if r.Verb == VerbCreate {
			pr.inDoubt = false
			o.reason = string(metav1.StatusReasonAlreadyExists)
			return o, pr
		}
		return conflicted(r, p, pr, o, rnd)
	}
	err, reason := failure(a, status)
	if a.err == nil && a.code == http.StatusNotFound && saysAbsent(status) {
		pr.verifying = nil
		switch {
		case r.Verb == VerbCreate: // the conflicting object is gone; the create decides
			return again(p, pr, a, outcome{reason: reason, err: err}, rnd)
		case r.NotFoundOK:
			return outcome{action: done, reason: reason}, pr
		}
		return outcome{action: fail, reason: reason, err: err}, pr
	}
	if a.err == nil && a.code < 300 {
		err, reason = plausible(a), "protocol"
	}
	err = fmt.Errorf("%w (cannot compare with the live object: %w)", refusal.err, err)
	o := outcome{action: fail, reason: reason, err: err}
	switch {
	case a.err == nil && a.code == http.StatusUnauthorized && !pr.reloaded:
		pr.reloaded = true
		o.action, o.free, o.reload = retry, true, true
	case retryable(a):
		return again(p, pr, a, o, rnd)
	}
	return o, pr
}

// objectMeta is the relevant metadata of a body.
type objectMeta struct {
	Name            string `json:"name"`
	GenerateName    string `json:"generateName"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

func identity(r *Request, sent []byte) objectMeta {
	if m, ok := r.Object.(interface {
		GetName() string
		GetGenerateName() string
		GetUID() types.UID
		GetResourceVersion() string
	}); ok && r.Body == nil {
		return objectMeta{m.GetName(), m.GetGenerateName(), string(m.GetUID()), m.GetResourceVersion()}
	}
	var o struct {
		Metadata objectMeta `json:"metadata"`
	}
	if json.Unmarshal(sent, &o) != nil {
		return objectMeta{}
	}
	return o.Metadata
}

func generated(r *Request, sent []byte) bool {
	m := identity(r, sent)
	return r.Subresource == "" && m.Name == "" && m.GenerateName != ""
}

// testsVersion reports whether a JSON patch is bound to one version of the object.
func testsVersion(patch []byte) bool {
	var ops []struct {
		Op, Path string
	}
	if json.Unmarshal(patch, &ops) != nil {
		return false
	}
	for _, op := range ops {
		if op.Op == "test" && op.Path == "/metadata/resourceVersion" {
			return true
		}
	}
	return false
}
