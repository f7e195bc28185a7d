package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/frame"
)

// initialEventsEnd is the annotation of the bookmark that ends the initial events of a watch (KEP-3157).
const initialEventsEnd = metav1.InitialEventsAnnotationKey

type eventKind uint8

const (
	evOpened   eventKind = iota + 1 // the server has answered 200
	evObject                        // an item of a list, or ADDED, MODIFIED, DELETED
	evBookmark                      // obj.Header.ResourceVersion is the version
	evError                         // err is an *APIError
	evGarbage                       // one frame that cannot be read; raw has it, err says why
	evListEnd                       // list has the metadata
)

// event is what decoders make of the bytes. Slots are reused; everything in them aliases the buffer of their batch.
type event struct {
	kind       eventKind
	change     ChangeType
	obj        Object
	err        error // an object that cannot be handed over, or why kind is evError or evGarbage
	initialEnd bool
	list       *listMeta
}

type listMeta struct {
	kind          string // of the items; empty if the list does not tell
	apiVersion    string
	version, next string
	remaining     int64
}

// decoder cuts events out of a growing buffer.
type decoder interface {
	// next decodes the event at the beginning of b. n bytes are done with, whatever else is returned. frame.ErrShort
	// asks for more bytes; with eof there are none, and the value is cut. Any other error ends the stream.
	next(b []byte, eof bool, e *event) (n int, got bool, err error)
}

func (e *event) reset(enc Encoding) {
	e.kind, e.change, e.err, e.initialEnd, e.list = 0, 0, nil, false, nil
	e.obj.Raw, e.obj.Encoding = nil, enc
	e.obj.Header.reset()
}

// finishObject checks what the scan alone cannot.
func (e *event) finishObject() {
	e.kind = evObject
	switch h := &e.obj.Header; {
	case e.err != nil:
	case h.wrong != nil:
		e.err = h.wrong
	case len(h.Name) == 0:
		e.err = errNoName
	}
}

// finishItem is finishObject for an item of a list. Whatever an item is, the others are what they are.
func (e *event) finishItem() {
	e.change = Added
	if h := &e.obj.Header; e.err == nil && wrongKind(h.Kind, h.APIVersion) {
		e.err = &ProtocolError{What: string(h.Kind) + " as item of a list", Excerpt: excerpt(e.obj.Raw)}
	}
	e.finishObject()
}

// deletionNeedsNoContent makes a deletion of one whose last state cannot be read, as long as it says of what.
func (e *event) deletionNeedsNoContent() {
	if e.err != nil && e.change == Deleted && len(e.obj.Header.Name) > 0 {
		e.err, e.obj.Raw = nil, nil
		e.obj.Header.ManagedFields = Span{}
	}
}

// wrongKind tells objects that no list or watch of a resource contains: the answer is not what was asked for.
func wrongKind(kind, apiVersion []byte) bool {
	switch string(kind) {
	case "Table":
		return len(apiVersion) >= 12 && string(apiVersion[:12]) == "meta.k8s.io/"
	case "Status":
		return string(apiVersion) == "v1"
	}
	return false
}

// finishEvent gives an object of a watch its meaning.
func (e *event) finishEvent(eventType string) error {
	switch e.change = changeOf(eventType); eventType {
	case "ADDED", "MODIFIED", "DELETED":
	case "BOOKMARK":
		e.kind = evBookmark
		e.initialEnd = endsInitialEvents(&e.obj)
		return nil
	case "ERROR":
		e.kind = evError
		e.err = inStreamError(&e.obj, string(e.obj.Header.Kind))
		return nil
	default:
		e.kind, e.err = evGarbage, errEventType
		return nil
	}
	if h := &e.obj.Header; wrongKind(h.Kind, h.APIVersion) {
		return &ProtocolError{What: string(h.Kind) + " instead of an object", Excerpt: excerpt(e.obj.Raw)}
	}
	e.finishObject()
	return nil
}

// changeOf is the type of a change, or 0 if it is something else.
func changeOf(eventType string) ChangeType {
	switch eventType {
	case "ADDED":
		return Added
	case "MODIFIED":
		return Modified
	case "DELETED":
		return Deleted
	}
	return 0
}

func endsInitialEvents(o *Object) bool {
	var m metav1.PartialObjectMetadata
	if o.Encoding == Protobuf {
		return m.Unmarshal(o.Raw) == nil && m.Annotations[initialEventsEnd] == "true"
	}
	var only struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	return json.Unmarshal(o.Raw, &only) == nil && only.Metadata.Annotations[initialEventsEnd] == "true"
}

// inStreamError is the error of a status within a watch. The object is another one where a proxy or a server is broken.
func inStreamError(o *Object, kind string) error {
	var s metav1.Status
	var err error
	switch {
	case kind != "Status" && kind != "":
		return &ProtocolError{What: kind + " instead of a status in an error event", Excerpt: excerpt(o.Raw)}
	case o.Encoding == Protobuf:
		err = s.Unmarshal(o.Raw)
	default:
		err = json.Unmarshal(o.Raw, &s)
	}
	if err != nil {
		return &ProtocolError{What: "an error event without a status", Excerpt: excerpt(o.Raw), Err: err}
	}
	err = refusalOf(s)
	if api, ok := errors.AsType[*APIError](err); ok {
		api.InStream = true
	}
	return err
}

// refusalOf is the error of a status that came where a list or a change was expected. A status that has neither a code
// nor a known reason says nothing, and one of success is no answer to a list or a watch.
func refusalOf(s metav1.Status) error {
	e := newAPIError(int(s.Code), s)
	switch {
	case s.Status == metav1.StatusSuccess:
		return &ProtocolError{What: "status of a success", Excerpt: s.Message}
	case e.Code < http.StatusBadRequest:
		return &ProtocolError{What: fmt.Sprintf("status with code %d and reason %q", e.Code, s.Reason), Excerpt: s.Message}
	}
	return e
}

func newAPIError(code int, s metav1.Status) *APIError {
	if code == 0 {
		code = codes[s.Reason]
	}
	e := &APIError{Code: code, ErrStatus: s}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		e.RetryAfter = time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	return e
}

// codes are those of a Status that has a reason only.
var codes = map[metav1.StatusReason]int{
	metav1.StatusReasonUnauthorized:       http.StatusUnauthorized,
	metav1.StatusReasonForbidden:          http.StatusForbidden,
	metav1.StatusReasonNotFound:           http.StatusNotFound,
	metav1.StatusReasonMethodNotAllowed:   http.StatusMethodNotAllowed,
	metav1.StatusReasonNotAcceptable:      http.StatusNotAcceptable,
	metav1.StatusReasonGone:               http.StatusGone,
	metav1.StatusReasonExpired:            http.StatusGone,
	metav1.StatusReasonBadRequest:         http.StatusBadRequest,
	metav1.StatusReasonInvalid:            http.StatusUnprocessableEntity,
	metav1.StatusReasonTooManyRequests:    http.StatusTooManyRequests,
	metav1.StatusReasonInternalError:      http.StatusInternalServerError,
	metav1.StatusReasonServiceUnavailable: http.StatusServiceUnavailable,
	metav1.StatusReasonTimeout:            http.StatusGatewayTimeout,
	metav1.StatusReasonServerTimeout:      http.StatusInternalServerError,
}

// isShort says that more bytes could complete the value.
func isShort(err error) bool { return err == frame.ErrShort }
