package operations

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// The types of operations and the modes of execution, as in package v1alpha1.
const (
	Create = v1alpha1.OperationCreate
	Update = v1alpha1.OperationUpdate
	Delete = v1alpha1.OperationDelete

	Sequential = v1alpha1.ExecutionSequential
	Parallel   = v1alpha1.ExecutionParallel
)

// Resource identifies the resource that an operation changes. It is a resource of the API service, not of Kubernetes.
// Both parts are free text and required.
type Resource struct {
	Type string // for example Application; up to 128 bytes
	ID   string // unique within its type; up to 512 bytes
}

// String returns Type/ID.
func (r Resource) String() string { return r.Type + "/" + r.ID }

// Path returns the path of the resource's operation in the HTTP API: /operations/{type}/{id}, percent-encoded.
func (r Resource) Path() string { return "/operations/" + segment(r.Type) + "/" + segment(r.ID) }

// segment escapes text as one path segment. Clients would resolve a bare "." or "..", so their dots are escaped too.
func segment(text string) string {
	if text == "." || text == ".." {
		return strings.ReplaceAll(text, ".", "%2E")
	}
	return url.PathEscape(text)
}

func (r Resource) reference() v1alpha1.ResourceReference {
	return v1alpha1.ResourceReference{ResourceType: r.Type, ResourceID: r.ID}
}

// Request asks for one operation. Type and Resource are required.
type Request struct {
	// ID is unique among the requests of all resources of the namespace, because receivers identify a request by its ID
	// alone. Scheduling the same ID again changes nothing while the Operation, or its history of ten, contains it.
	// Default: a new random UUID.
	ID string
	// Type is Create, Update or Delete.
	Type v1alpha1.OperationType
	// Category groups operations of one kind, for example registerApplication.
	Category string
	// Resource is the resource that the operation changes.
	Resource Resource
	// Related lists further resources that the operation touches. Queries can select by them.
	Related []Resource
	// Lock lists related resources that this operation locks. It waits for all operations accepted before it that have
	// one of them as their own or as a locked resource. Operations accepted later wait until this one ends.
	Lock []Resource
	// CorrelationID is sent with every call.
	CorrelationID string
	// Webhooks names Webhooks of the namespace, in call order. An operation without any succeeds at once.
	Webhooks []string
	// Object is available to templates as .Resource. It may be any value that encodes as JSON. Object, TenantID and
	// Headers together may have up to 256 KiB.
	Object any
	// TenantID names the tenant on whose behalf the request runs.
	TenantID string
	// Headers are headers of the caller's request that templates may use. Names that suggest credentials are refused.
	Headers map[string]string
	// Execution is Sequential (default) or Parallel.
	Execution v1alpha1.ExecutionMode
	// Timeout bounds the whole operation, counted from when it is scheduled. Default: 2h.
	Timeout time.Duration
	// Notify names a Webhook that receives the outcome.
	Notify string
	// Compensate names Webhooks that are called when the operation fails after at least one webhook succeeded.
	Compensate []string
	// TTLAfterFinished is the time between the end of the Operation and its deletion. Default: it is not deleted.
	TTLAfterFinished *time.Duration
}

// Spec returns the request as the spec of an Operation, or an [*InvalidError] with every problem.
func (r Request) Spec() (v1alpha1.OperationSpec, error) {
	spec := v1alpha1.OperationSpec{
		OperationID:          r.ID,
		OperationType:        r.Type,
		OperationCategory:    r.Category,
		ResourceReference:    r.Resource.reference(),
		CorrelationID:        r.CorrelationID,
		WebhookIDs:           r.Webhooks,
		Execution:            r.Execution,
		Timeout:              metav1.Duration{Duration: r.Timeout},
		NotifyWebhookID:      r.Notify,
		CompensateWebhookIDs: r.Compensate,
	}
	for _, related := range r.Related {
		if !slices.Contains(r.Lock, related) {
			spec.RelatedResources = append(spec.RelatedResources,
				v1alpha1.RelatedResource{ResourceReference: related.reference()})
		}
	}
	for _, locked := range r.Lock {
		spec.RelatedResources = append(spec.RelatedResources,
			v1alpha1.RelatedResource{ResourceReference: locked.reference(), Lock: true})
	}
	if r.TTLAfterFinished != nil {
		spec.TTLAfterFinished = &metav1.Duration{Duration: *r.TTLAfterFinished}
	}
	if r.Object != nil || r.TenantID != "" || len(r.Headers) > 0 {
		spec.RequestObject = &v1alpha1.RequestObject{TenantID: r.TenantID, Headers: maps.Clone(r.Headers)}
	}
	if r.Object != nil {
		raw, err := json.Marshal(r.Object)
		if err != nil {
			return spec, &InvalidError{Fields: []FieldError{
				{"spec.requestObject.resource", "cannot be encoded as JSON: " + err.Error()},
			}}
		}
		spec.RequestObject.Resource = &apiextensionsv1.JSON{Raw: raw}
	}
	return spec, Validate(spec)
}

var (
	operationID   = regexp.MustCompile(`^[!--/-~]+$`)
	correlationID = regexp.MustCompile(`^[ -~]*$`)
	headerName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	credential    = regexp.MustCompile(
		`^(?i)(authentication|proxy[-_].*|.*cookie2?|(.*[-_])?(authorization|(api|access|auth|private|secret)[-_]?key|` +
			`(access|auth|id)[-_]?token|auth|token|secret|password|credentials?)|x[-_]forwarded[-_]client[-_]cert|www[-_]authenticate)$`,
	)
)

// Bounds of the lists in a spec. Validation looks at no more items than these, so that a caller cannot cause unbounded
// work.
const (
	maxWebhooks = 32
	maxRelated  = 64
	maxHeaders  = 32
)

const operationIDRule = "must be up to 255 visible ASCII characters without a dot"

func isOperationID(text string) bool { return len(text) <= 255 && operationID.MatchString(text) }

// carriesCredentials reports whether the name suggests that the header carries credentials. No Operation may store such
// a header.
func carriesCredentials(header string) bool { return credential.MatchString(header) }

// Validate checks a spec by the rules that the API server enforces too. A caller gets every problem at once and without
// a request to the server. Validate returns nil or an [*InvalidError].
func Validate(spec v1alpha1.OperationSpec) error {
	v := &validator{}
	if spec.OperationID != "" {
		v.check(isOperationID(spec.OperationID), "spec.operationID", operationIDRule)
	}
	v.check(spec.OperationType == Create || spec.OperationType == Update || spec.OperationType == Delete,
		"spec.operationType", "must be Create, Update or Delete")
	v.length("spec.operationCategory", spec.OperationCategory, 253)
	v.resource("spec.", spec.ResourceReference)
	for i, related := range spec.RelatedResources[:min(len(spec.RelatedResources), maxRelated)] {
		v.resource(fmt.Sprintf("spec.relatedResources[%d].", i), related.ResourceReference)
	}
	v.check(len(spec.RelatedResources) <= maxRelated, "spec.relatedResources",
		fmt.Sprintf("must have at most %d items", maxRelated))
	v.length("spec.correlationID", spec.CorrelationID, 255)
	v.check(correlationID.MatchString(spec.CorrelationID), "spec.correlationID", "must be printable ASCII")
	v.webhooks("spec.webhookIDs", spec.WebhookIDs)
	v.webhooks("spec.compensateWebhookIDs", spec.CompensateWebhookIDs)
	if spec.NotifyWebhookID != "" {
		v.webhook("spec.notifyWebhookID", spec.NotifyWebhookID)
	}
	v.check(spec.Execution == "" || spec.Execution == Sequential || spec.Execution == Parallel, "spec.execution",
		"must be Sequential or Parallel")
	v.check(spec.Timeout.Duration >= 0, "spec.timeout", "must be a duration above zero, such as 30s or 2h")
	if spec.TTLAfterFinished != nil {
		v.check(spec.TTLAfterFinished.Duration >= 0, "spec.ttlAfterFinished", "must not be negative")
	}
	v.requestObject(spec.RequestObject)
	if len(v.fields) > 0 {
		return &InvalidError{Fields: v.fields}
	}
	return nil
}

type validator struct{ fields []FieldError }

func (v *validator) check(ok bool, field, problem string) {
	if !ok {
		v.fields = append(v.fields, FieldError{field, problem})
	}
}

func (v *validator) length(field, value string, limit int) {
	v.check(len(value) <= limit, field, fmt.Sprintf("must be at most %d bytes long", limit))
}

func (v *validator) resource(prefix string, r v1alpha1.ResourceReference) {
	v.check(r.ResourceType != "", prefix+"resourceType", "is required")
	v.check(r.ResourceID != "", prefix+"resourceID", "is required")
	v.check(utf8.ValidString(r.ResourceType), prefix+"resourceType", "must be valid UTF-8")
	v.check(utf8.ValidString(r.ResourceID), prefix+"resourceID", "must be valid UTF-8")
	v.length(prefix+"resourceType", r.ResourceType, 128)
	v.length(prefix+"resourceID", r.ResourceID, 512)
}

func (v *validator) webhooks(field string, names []string) {
	v.check(len(names) <= maxWebhooks, field, fmt.Sprintf("must have at most %d items", maxWebhooks))
	for i, name := range names[:min(len(names), maxWebhooks)] {
		at := fmt.Sprintf("%s[%d]", field, i)
		v.webhook(at, name)
		v.check(slices.Index(names, name) == i, at, "must name each webhook once")
	}
}

func (v *validator) webhook(field, name string) {
	for _, problem := range validation.IsDNS1123Subdomain(name) {
		v.check(false, field, "must be the name of a Webhook: "+problem)
	}
	v.check(!strings.HasSuffix(name, ".compensate") && !strings.HasSuffix(name, ".notify"), field,
		"must not end in .compensate or .notify, which are reserved for idempotency keys")
}

func (v *validator) requestObject(o *v1alpha1.RequestObject) {
	if o == nil {
		return
	}
	v.length("spec.requestObject.tenantID", o.TenantID, 253)
	v.check(len(o.Headers) <= maxHeaders, "spec.requestObject.headers",
		fmt.Sprintf("must have at most %d items", maxHeaders))
	for _, name := range slices.Sorted(maps.Keys(o.Headers))[:min(len(o.Headers), maxHeaders)] {
		at := fmt.Sprintf("spec.requestObject.headers[%s]", name)
		v.check(headerName.MatchString(name), at, "names must consist of letters, digits, dash and underscore, at most 128")
		v.check(!carriesCredentials(name), at, "must not carry credentials")
		v.length(at, o.Headers[name], 4096)
	}
	if err := o.CheckSize(); err != nil {
		v.check(false, "spec.requestObject", "is too large: "+err.Error())
	}
}
