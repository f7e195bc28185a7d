// Package admission serves webhooks of the API server for typed objects: validating and mutating ones, and conversions
// between the versions of a custom resource. They are declared beside the reconciler, and the program itself makes
// their certificates and writes their configuration: nothing else has to be installed.
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
// # Do you need one?
//
// A webhook is a program in the way of every write: when it is down, either nobody can write or nothing is checked.
// What can be said in the schema of the resource (required, enum, pattern, default, x-kubernetes-validations) or in CEL
// is evaluated by the API server itself, which is never down without that. A ValidatingAdmissionPolicy compares the
// object with the old one, with parameters, with who asks and with what he may do; a MutatingAdmissionPolicy
// (Kubernetes 1.36) sets defaults that depend on other fields:
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
// testdata/policies.yaml has both as a whole, and a test applies them. A hook is for what they cannot do: look at other
// objects, ask somebody else, run code that the reconciler runs too, tell several fields at once, convert.
//
// # When it is down
//
// OnFailure has no default. [FailClosed] refuses what cannot be asked about, [FailOpen] lets it pass. The same decides
// when a function panics, does not return in time, or says [Undecided]; an error of it is a refusal in any case. Of
// conversions nothing passes.
//
// No hook is asked about kube-system and about the namespace of the program, where its Secret and its Lease are
// (ExcludeNamespaces names others), nor about webhook configurations, nor about the CustomResourceDefinitions that it
// converts: so a hook that is down does not keep itself from coming back. Objects in no namespace know no such
// exception. A fail-closed hook for what the program needs to start elsewhere (Nodes, say) is a trap that only its
// author can see.
//
// Until the configuration was written for the first time nobody is asked, whatever OnFailure says. An update of an object
// that is being deleted is let pass without asking a function: else who holds a finalizer of an object that was stored
// before there was the hook could not let it go.
//
// # Conversion
//
// The manifest of a CustomResourceDefinition of more than one version says strategy Webhook, with Service and path, and
// without a caBundle (see [Convert]). A definition of one version needs nothing. So the API server converts nothing
// until the program has filled in the caBundle: objects of the stored version can be read, and every request that would
// need a conversion is refused. The program fills in the caBundle before sources of the kind are opened, watches the
// definition, and fills it in again when a new apply has taken it away.
//
// With strategy None, which the API server fills in where the manifest says nothing, a mere kubectl label through one
// version drops the fields of the others. The program repairs such a definition of several versions at once, and reports
// that objects may have lost fields:
//
//   - by the condition fairlead.io/FieldsMayBeLost of the definition, with the time. It stays True until an operator has
//     compared the objects with a backup and sets it to False (kubectl edit crd NAME --subresource status);
//   - by an Event (Warning, FieldsMayBeLost) in the namespace default, and in the log.
//
// The program goes on, unless [Options].ExitOnLostFields says otherwise. Sources that were open when the strategy became
// None keep what they have read until the objects change; a restart lists them again.
//
// A process converts for its own sources, too: /readyz does not wait until kinds that it converts are listed, as the
// Service leads to processes that are ready.
//
// # Certificates
//
// One authority, in a Secret that the first replica creates, signs a certificate for each replica, which no other one
// has. All replicas look at the Secret and at the configurations every minute, and put right what is not as it should
// be:
//
//   - A new authority is in the Secret and in every caBundle before anything that it has signed is served: that takes a
//     consistent read of all configurations, and ten minutes for the API servers to learn of it. Configurations are
//     written at the version that was read before the Secret, so that nobody who has read an older Secret can write
//     over them.
//   - The old one is trusted until it ends, and nothing that it has signed is valid for longer.
//   - An entry of the Secret that cannot be used is removed, and the log names it. If none is left that signs,
//     or the Secret is gone, there is a new authority, and those of the caBundles stay trusted, as replicas still serve
//     what they signed. To take an authority away at once, stop all replicas, delete the Secret and the configurations,
//     and start them.
//
// A certificate is replaced without a restart, and without closing a connection.
//
// # Several replicas
//
// All of them serve, whoever leads. /readyz says no until this one serves and everything is configured, so that a
// Service sends it nothing before that. At the end it goes on to take requests for three seconds (Linger), until the
// Service knows, and lets those under way finish. While a new version of the program replaces an old one, with other
// hooks, both write their configuration now and then; the last one that is left has its way within a minute. A
// configuration without any hook left is removed; the conversion of a CustomResourceDefinition stays, as objects could
// not be read without it.
//
// # Rights
//
// [Hooks.Rights] says what is asked, and so does Runtime.Rights; docs/SECURITY.md says what that allows.
//
// # Invariants
//
//   - Nobody who trusts a caBundle that was read at most Settle ago meets a certificate that it does not cover, unless
//     the Secret was lost, of a replica that has started since.
//   - A patch holds what the function has changed, as far as its type knows it, and nothing else. If elements of a list
//     change their places, what the type does not know of them is lost.
//   - A panic of a function ends its request, nothing else.
//   - Conversions have places of their own beside those of hooks, so that a hook may read what has to be converted.
package admission
