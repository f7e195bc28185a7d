package call

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// repeatable says whether a write whose outcome is unknown may be sent again without harm.
func repeatable(r *Request, sent []byte) bool {
	if r.Idempotent {
		return true
	}
	switch r.Verb {
	case VerbDelete, VerbDeleteCollection, VerbApply:
		return true
	case VerbCreate:
		// With a fixed name the second create is refused by the first. The create of a subresource is an action.
		return r.Subresource == "" && identity(r, sent).Name != ""
	case VerbUpdate:
		return identity(r, sent).ResourceVersion != ""
	case VerbPatch:
		switch r.PatchType {
		case types.MergePatchType:
			return true // RFC 7396: the second time it changes nothing
		case types.JSONPatchType:
			return testsVersion(sent)
		default:
			return identity(r, sent).ResourceVersion != ""
		}
	}
	return true
}

// changes says whether a request that is executed changes anything on the server: a write that is no dry run.
func changes(r *Request, sent []byte) bool {
	if !r.Verb.write() {
		return false
	}
	if r.deletes() && len(sent) > 0 { // the query does not count
		var options struct{ DryRun []string }
		return json.Unmarshal(sent, &options) != nil || len(options.DryRun) == 0
	}
	return r.Query.Get("dryRun") == ""
}

// readable says whether what a create was refused for can be read: an action leaves nothing of its name, and a body
// that we do not understand has none.
func readable(r *Request, sent []byte) bool {
	return r.Subresource == "" && identity(r, sent).Name != ""
}

// verify judges the read of the live object that settles a refusal after a try of unknown outcome. Where the read
// fails, the refusal stands, and the outcome stays unknown.
func verify(r *Request, p Policy, sent []byte, pr progress, a answer, rnd func() float64) (outcome, progress) {
	refusal := pr.verifying
	status := statusOf(a)
	if a.err == nil && a.code < 300 && plausible(a) == nil {
		pr.verifying = nil
		if shows(r, sent, a.body) {
			return succeed(a, pr, true), pr
		}
		// It may have been executed all the same, and overwritten since. Of a create the object that is there tells
		// more than that.
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
		case r.Verb == VerbCreate: // what was in the way is gone again: the create itself decides
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

// objectMeta is what must be known of a body.
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

// testsVersion says whether a JSON patch applies only to one version of the object.
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
