// Package admission serves validating, mutating and conversion webhooks for typed objects. Hooks are declared next to
// the reconciler. The program creates their certificates and writes their configuration, so no other component needs to
// be installed.
//
//	rt := fairlead.New(cfg, fairlead.WithScheme(scheme), fairlead.WithListen(":9090"))
//	hooks := admission.Serve(rt, admission.Options{
//		Name: "webpages", Namespace: "webpages-system", Service: "webpages-webhook", // port 443 to 9443 of the pods
//	})
//	admission.Validate(hooks, admission.Rule{OnFailure: admission.FailClosed},
//		func(ctx context.Context, r *admission.Request[v1.WebPage]) error {
//			if r.Old != nil && r.Old.Spec.Host != r.Object.Spec.Host {
//				return field.Forbidden(field.NewPath("spec", "host"), "it cannot be changed") // 422, with this cause
//			}
//			if r.Object.Spec.Replicas > 100 {
//				r.Warn("%d replicas are a lot", r.Object.Spec.Replicas) // shown by kubectl
//			}
//			return nil
//		})
//	admission.Mutate(hooks, admission.Rule{OnFailure: admission.FailOpen},
//		func(ctx context.Context, r *admission.Request[v1.WebPage]) error {
//			if r.Object.Spec.Port == 0 {
//				r.Object.Spec.Port = 80
//			}
//			return nil
//		})
//	admission.Convert(hooks, v1alpha1ToV1, v1ToV1alpha1) // v1 is the hub; one call for each other version
//	err := rt.Run(ctx)
//
// Package admissiontest runs such hooks in a test, against a real API server.
//
// # Alternatives to a webhook
//
// A webhook is part of every write: while it is down, writes either fail or pass unchecked. The API server itself
// evaluates rules in the schema of the resource (required, enum, pattern, default, x-kubernetes-validations) and CEL,
// and these have no downtime of their own. A ValidatingAdmissionPolicy can compare the object with its previous state,
// with parameters, and with the user and the user's permissions. A MutatingAdmissionPolicy (Kubernetes 1.36) sets
// defaults that depend on other fields:
//
//	spec:
//	  validations:
//	    - expression: "oldObject == null || oldObject.data.path == object.data.path"
//	      messageExpression: "'the path stays ' + oldObject.data.path"
//
//	spec:
//	  mutations:
//	    - patchType: ApplyConfiguration
//	      applyConfiguration:
//	        expression: 'Object{data: {"path": "/" + object.metadata.name}}'
//
// testdata/policies.yaml contains both policies in full, and a test applies them. Hooks are for cases beyond these
// policies. A hook can read other objects, call other services, share code with the reconciler, report errors of
// several fields at once, and convert versions.
//
// # Downtime
//
// OnFailure has no default. [FailClosed] refuses requests that the hook cannot check, [FailOpen] allows them. The
// policy also applies if a function panics, does not return in time, or returns an [Undecided] error; any other error
// is a refusal. Conversions always fail closed.
//
// Hooks are not called for kube-system, for the namespace of the program, which contains its Secret and its Lease, and
// for ExcludeNamespaces. They are also not called for webhook configurations and for the CustomResourceDefinitions that
// the program converts. A hook that is down therefore does not block its own restart. Other cluster-scoped objects have
// no such exception. A fail-closed hook for objects that the program needs for its start, such as Nodes, can block the
// start; its author must avoid that.
//
// Before the configuration is written for the first time, the API server calls no hooks, whatever OnFailure says. An
// update of an object under deletion is allowed without a call of the function. Otherwise the finalizer of an object
// stored before the hook existed might never be removed.
//
// # Conversion
//
// The manifest of a CustomResourceDefinition with several versions must set strategy Webhook with Service and path,
// without a caBundle (see [Convert]). A definition with one version needs no stanza. The API server converts no objects
// until the program has filled in the caBundle: objects of the stored version can be read, and requests that need a
// conversion fail. The program fills in the caBundle before it opens sources of the kind. It watches the definition and
// restores the caBundle when an apply removes it.
//
// The API server uses strategy None if the manifest sets no strategy. With it, even a kubectl label through one version
// drops the fields of the others. The program repairs such a definition with several versions at once, and reports that
// objects may have lost fields:
//
//   - by the condition fairlead.io/FieldsMayBeLost of the definition, with the time. It stays True until an operator
//     has compared the objects with a backup and sets it to False (kubectl edit crd NAME --subresource status);
//   - by an Event (Warning, FieldsMayBeLost) in the namespace default, and in the log.
//
// The program continues unless [Options].ExitOnLostFields is set. Sources that were open when the strategy became None
// keep the state that they have read until the objects change; a restart lists the objects again.
//
// A process also converts for its own sources. Since a Service routes only to ready processes, /readyz does not wait
// until the kinds that the process converts are listed.
//
// # Certificates
//
// The first replica creates an authority in a Secret. The authority signs a separate certificate for each replica. All
// replicas check the Secret and the configurations every minute and correct differences:
//
//   - A new authority is in the Secret and in every caBundle before a certificate that it signed is served. This
//     requires a consistent read of all configurations, and ten minutes for the API servers to apply them. A write of a
//     configuration is conditional on its version, which is read before the Secret. A replica with an older Secret
//     therefore cannot overwrite newer configurations.
//   - The old authority is trusted until it expires, and no certificate that it signed is valid for longer.
//   - An invalid entry of the Secret is removed, and the log names it. If no authority is left that can sign, or the
//     Secret is gone, a new authority is created. The authorities in the caBundles stay trusted, since replicas still
//     serve certificates that they signed. To revoke an authority at once, stop all replicas, delete the Secret and the
//     configurations, and start the replicas.
//
// A certificate is replaced without a restart and without closing connections.
//
// # Several replicas
//
// All replicas serve, whether or not they lead. /readyz fails until the replica serves and all hooks are configured, so
// a Service does not send requests earlier. At the end the replica accepts requests for three more seconds (Linger),
// until the Service has removed it, and finishes the requests in progress. During a rollout to a version with other
// hooks, old and new replicas may alternately overwrite the configuration. Within a minute after the last old replica
// has stopped, the configuration of the new version is in place. A configuration without hooks is removed. The
// conversion of a CustomResourceDefinition stays, since objects could not be read without it.
//
// # Rights
//
// [Hooks.Rights] returns the permissions that the hooks need; Runtime.Rights includes them. docs/SECURITY.md describes
// the consequences of these permissions.
//
// # Invariants
//
//   - A client with a caBundle read at most Settle ago can verify every served certificate. The exception is a
//     replica that has started after the loss of the Secret.
//   - A patch contains only the changes that the function made, as far as its type represents them. If list elements
//     change their positions, fields of them that the type does not represent are lost.
//   - A panic of a function ends only its request.
//   - Conversions have their own places besides those of hooks, so a hook may read objects that need a conversion.
//
// # Parts
//
// [Hooks] connects the following parts. A part with a lock owns its state; no other part reads it. No lock is held
// while another one is taken, except that declarations calls the cache under its lock.
//
//   - declarations (declarations.go): the hooks (rule.go, request.go), the converters (convert.go) and the mistakes in
//     them. Lock: mu. They do not change after the start.
//   - server (server.go) answers hooks and conversions. Its state is the places for requests, two channels. denial.go
//     and patch.go are pure functions; tracer (trace.go) makes spans.
//   - certificate (certificate.go): the served certificate, an atomic pointer.
//   - readiness (readiness.go): whether the hooks are served and configured. Lock: mu.
//   - keeper (keeper.go) repeats the check that corrects the Secret (authorities.go), the configurations (target.go,
//     with the content from configuration.go) and the certificate. repairs (definition.go) reports definitions whose
//     conversion strategy was None. One goroutine uses the keeper, so it has no lock.
package admission
