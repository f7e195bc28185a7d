package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// The programs whose writes the stand-ins make. The server records them as field managers.
const (
	manager   = "kube-controller-manager"
	kubelet   = "kubelet"
	scheduler = "kube-scheduler"
)

// request is one request to the API server.
type request struct {
	agent, method, path, contentType string

	body     any                         // encoded as JSON
	then     func(code int, body []byte) // gets the answer, also one that means a failure, if set
	isReport bool                        // it tells of a failure of the same key, and does not make it good
	isRead   bool                        // its answer is no change, so the key is decided again
}

// pathOf returns the path of a collection.
func pathOf(gv schema.GroupVersion, namespace, resource string) string {
	path := "/apis/" + gv.Group + "/" + gv.Version
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	return path + "/" + resource
}

// pathTo returns the path of an object.
func (o *object) pathTo(subresource string) string {
	path := pathOf(schema.GroupVersion{Group: o.res.Group, Version: o.res.Version}, o.namespace, o.res.Resource) +
		"/" + url.PathEscape(o.name)
	if subresource != "" {
		path += "/" + subresource
	}
	return path
}

// create returns the request that creates an object. obj must have its kind.
func create(agent, resource, namespace string, obj runtime.Object) *request {
	gv := obj.GetObjectKind().GroupVersionKind().GroupVersion()
	return &request{
		agent: agent, method: http.MethodPost, path: pathOf(gv, namespace, resource),
		contentType: runtime.ContentTypeJSON, body: obj,
	}
}

// update returns the request that replaces an object, or its status.
func update(agent string, o *object, subresource string, next any) *request {
	return &request{
		agent: agent, method: http.MethodPut, path: o.pathTo(subresource), contentType: runtime.ContentTypeJSON, body: next,
	}
}

// patch returns the request that merges a patch into an object, on the condition that it has not changed.
func patch(agent string, o *object, change map[string]any) *request {
	meta, _ := change["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		change["metadata"] = meta
	}
	meta["resourceVersion"] = o.u.GetResourceVersion()
	return &request{
		agent: agent, method: http.MethodPatch, path: o.pathTo(""), contentType: "application/merge-patch+json",
		body: change,
	}
}

// remove returns the request that deletes an object, on the condition that it has the same uid. An empty policy leaves
// the dependents to the default of the kind.
func remove(agent string, o *object, policy metav1.DeletionPropagation, grace *int64) *request {
	opts := metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &o.uid}, GracePeriodSeconds: grace,
	}
	if policy != "" {
		opts.PropagationPolicy = &policy
	}
	return &request{
		agent: agent, method: http.MethodDelete, path: o.pathTo(""), contentType: runtime.ContentTypeJSON, body: opts,
	}
}

// withoutFinalizer returns the request that removes a finalizer.
func withoutFinalizer(o *object, name string) *request {
	rest := []any{}
	for _, f := range o.finalizers {
		if f != name {
			rest = append(rest, f)
		}
	}
	return patch(manager, o, map[string]any{"metadata": map[string]any{"finalizers": rest}})
}

// withOwners returns the request that replaces the owner references of an object.
func withOwners(o *object, owners []metav1.OwnerReference) *request {
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	return patch(manager, o, map[string]any{"metadata": map[string]any{"ownerReferences": owners}})
}

// api sends requests over connections of its own. The first request makes it ready.
type api struct {
	cfg       *rest.Config
	client    *http.Client
	transport *http.Transport
}

func (a *api) start() error {
	tls, err := rest.TLSConfigFor(a.cfg)
	if err != nil {
		return err
	}
	a.transport = &http.Transport{DialContext: a.cfg.Dial, TLSClientConfig: tls, IdleConnTimeout: time.Hour}
	wrapped, err := rest.HTTPWrappersForConfig(a.cfg, a.transport)
	if err != nil {
		return err
	}
	a.client = &http.Client{Transport: wrapped}
	return nil
}

func (a *api) close() {
	if a.transport != nil {
		a.transport.CloseIdleConnections()
	}
}

// send sends a request. The error of an answer that means a failure is an apierrors.APIStatus.
func (a *api) send(ctx context.Context, r *request) error {
	if a.client == nil {
		if err := a.start(); err != nil {
			return fmt.Errorf("cannot connect to the API server: %w", err)
		}
	}
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return fmt.Errorf("cannot encode the body of %s %s: %w", r.method, r.path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, a.cfg.Host+r.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", r.agent)
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if r.then != nil {
		r.then(resp.StatusCode, answer)
	}
	if resp.StatusCode < 300 {
		return nil
	}
	status := metav1.Status{}
	if err := json.Unmarshal(answer, &status); err != nil || status.Reason == "" {
		status = metav1.Status{
			Status: metav1.StatusFailure, Code: int32(resp.StatusCode), Message: string(answer),
			Reason: metav1.StatusReasonUnknown,
		}
		if resp.StatusCode == http.StatusNotFound {
			status.Reason = metav1.StatusReasonNotFound
		}
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// isFinal reports whether another attempt has no use before something changes.
func isFinal(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func isConflict(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsConflict(err)
}
