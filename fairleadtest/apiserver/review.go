package apiserver

import (
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// review answers requests for resources that are not stored. It returns false for all others.
func (x *exchange) review() (bool, error) {
	var obj runtime.Object
	switch x.req.Group + "/" + x.req.Version + "/" + x.req.Resource {
	case "authentication.k8s.io/v1/tokenreviews":
		obj = &authenticationv1.TokenReview{}
	case "authorization.k8s.io/v1/subjectaccessreviews":
		obj = &authorizationv1.SubjectAccessReview{}
	case "authorization.k8s.io/v1/localsubjectaccessreviews":
		obj = &authorizationv1.LocalSubjectAccessReview{}
	case "authorization.k8s.io/v1/selfsubjectaccessreviews":
		obj = &authorizationv1.SelfSubjectAccessReview{}
	default:
		return false, nil
	}
	if x.req.Verb != "create" {
		return true, errors.NewMethodNotSupported(x.groupResource(), x.req.Verb)
	}
	if err := x.decodeTyped(obj); err != nil {
		return true, err
	}
	switch o := obj.(type) {
	case *authenticationv1.TokenReview:
		o.Status = x.s.authenticate(o.Spec)
	case *authorizationv1.SubjectAccessReview:
		o.Status = x.s.authorize(o.Spec)
	case *authorizationv1.LocalSubjectAccessReview:
		o.Status = x.s.authorize(o.Spec)
	case *authorizationv1.SelfSubjectAccessReview:
		o.Status = x.s.authorize(authorizationv1.SubjectAccessReviewSpec{
			User: "admin", Groups: []string{"system:masters"},
			ResourceAttributes: o.Spec.ResourceAttributes, NonResourceAttributes: o.Spec.NonResourceAttributes,
		})
	}
	return true, x.answerTyped(obj)
}

// decodeTyped decodes the body into a built-in type.
func (x *exchange) decodeTyped(obj runtime.Object) error {
	kinds, _, err := builtIn().scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	if _, _, err := builtIn().codecs.UniversalDeserializer().Decode(x.req.Body, &kinds[0], obj); err != nil {
		return errors.NewBadRequest(err.Error())
	}
	return nil
}

// answerTyped answers 201 with an object that is not stored.
func (x *exchange) answerTyped(obj runtime.Object) error {
	return x.answerTypedAs(http.StatusCreated, obj)
}

func (x *exchange) answerTypedAs(code int, obj runtime.Object) error {
	kinds, _, err := builtIn().scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	enc, ok := negotiate(x.r.Header.Get("Accept"), nil, false)
	if !ok {
		return notAcceptable()
	}
	if enc.proto {
		b, err := marshalProto(obj)
		if err != nil {
			return err
		}
		x.out.whole(code, typeProto, appendEnvelope(nil, kinds[0].GroupVersion().String(), kinds[0].Kind, b))
		return nil
	}
	b, err := runtime.Encode(builtIn().codecs.LegacyCodec(kinds[0].GroupVersion()), obj)
	if err != nil {
		return err
	}
	x.out.whole(code, typeJSON, b)
	return nil
}

func (s *Server) authenticate(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	if s.opts.Authenticate != nil {
		return s.opts.Authenticate(spec)
	}
	if token := s.currentToken(); token == "" || spec.Token != token {
		return authenticationv1.TokenReviewStatus{Error: "unknown token"}
	}
	return authenticationv1.TokenReviewStatus{
		Authenticated: true,
		User: authenticationv1.UserInfo{
			Username: "admin", Groups: []string{"system:masters", "system:authenticated"},
		},
	}
}

func (s *Server) authorize(spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	if s.opts.Authorize != nil {
		return s.opts.Authorize(spec)
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
}

// tokenRequest issues a token "namespace/name/n" for a service account. It is valid for the requested time.
func (x *exchange) tokenRequest() error {
	if x.s.store.get(x.table, objectKey(x.req.Namespace, x.req.Name)) == nil {
		return errors.NewNotFound(x.groupResource(), x.req.Name)
	}
	var obj authenticationv1.TokenRequest
	if err := x.decodeTyped(&obj); err != nil {
		return err
	}
	seconds := int64(3600)
	if obj.Spec.ExpirationSeconds != nil {
		seconds = *obj.Spec.ExpirationSeconds
	}
	obj.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s/%s/%d", x.req.Namespace, x.req.Name, x.s.names.Add(1)),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)),
	}
	return x.answerTyped(&obj)
}
