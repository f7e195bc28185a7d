package httpapi

import (
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
)

// Values of Problem.Cause: reasons why the API server refuses a request that the caller has the right to.
const (
	// CauseQuotaExceeded means that a ResourceQuota of the namespace is used up.
	CauseQuotaExceeded = "QuotaExceeded"
	// CauseNamespaceTerminating means that the namespace is being deleted.
	CauseNamespaceTerminating = "NamespaceTerminating"
	// CauseAdmissionDenied means that another admission plugin of the API server refuses the request.
	CauseAdmissionDenied = "AdmissionDenied"
	// CauseServerLacksRight means that the server of the HTTP API lacks the right for the request.
	CauseServerLacksRight = "ServerLacksRight"
)

// refused distinguishes refusals by admission from a missing right. The API server answers both with 403.
func refused(err error) *Problem {
	cause, _ := call.Why(err)
	p := &Problem{Status: http.StatusForbidden, Title: "Forbidden", Detail: "the API server refuses: " + err.Error()}
	by := cause.Evidence["refusedBy"]
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		p.Title, p.Cause = "The namespace is being terminated", CauseNamespaceTerminating
	case strings.HasPrefix(by, call.ResourceQuota+" "):
		p.Title, p.Cause = "Quota exceeded", CauseQuotaExceeded
	case by != "":
		p.Title, p.Cause = "Refused by admission", CauseAdmissionDenied
	case cause.Evidence["rule"] != "":
		p.Cause, p.Detail = CauseServerLacksRight, "the server itself lacks the right: "+err.Error()
	}
	if by != "" {
		p.Detail = cause.Message + ". " + cause.Advice
	}
	return p
}
